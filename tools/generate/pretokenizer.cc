// See pretokenizer.h. Character classes come from ICU.
#include "generate/pretokenizer.h"

#include <unicode/uchar.h>

#include <cstddef>
#include <cstdint>

#include "generate/utf8.h"

namespace tilewise::generate {
namespace {

enum class CharClass : std::uint8_t { kLetter, kNumber, kSpace, kOther };

struct Char {
  std::size_t offset;
  CharClass kind;
};

CharClass class_of(char32_t code_point) {
  const auto c = static_cast<UChar32>(code_point);
  const std::uint32_t category = U_GET_GC_MASK(c);
  if (category & U_GC_L_MASK) return CharClass::kLetter;
  if (category & U_GC_N_MASK) return CharClass::kNumber;
  return u_isUWhiteSpace(c) ? CharClass::kSpace : CharClass::kOther;
}

// The characters of `text`, and behind them an end mark with the text's length.
std::vector<Char> classify(std::string_view text) {
  std::vector<Char> chars;
  chars.reserve(text.size() + 1);
  std::size_t offset = 0;
  while (offset < text.size()) {
    const Utf8Char c = first_utf8_char(text.substr(offset));
    const bool valid = c.state == Utf8State::kValid;
    chars.push_back({offset, valid ? class_of(c.code_point) : CharClass::kOther});
    offset += c.length;
  }
  chars.push_back({offset, CharClass::kNumber});
  return chars;
}

// Length in bytes of the contraction that `text` begins with, 0 if there is none.
std::size_t contraction_bytes(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (text.substr(0, ending.size()) == ending) return ending.size();
  }
  return 0;
}

std::size_t end_of_run(const std::vector<Char>& chars, std::size_t i, std::size_t end) {
  const CharClass kind = chars[i].kind;
  while (i < end && chars[i].kind == kind) ++i;
  return i;
}

// Index of the first character after the piece that begins at `begin`; no character up to `end` is
// a number.
std::size_t end_of_piece(std::string_view text, const std::vector<Char>& chars, std::size_t begin,
                         std::size_t end) {
  // A contraction is ASCII: as many characters as bytes. It cannot reach over `end`, which is no
  // letter.
  const std::size_t contraction = contraction_bytes(text.substr(chars[begin].offset));
  if (contraction != 0) return begin + contraction;
  if (chars[begin].kind != CharClass::kSpace) return end_of_run(chars, begin, end);
  const bool word_follows = begin + 1 < end && chars[begin + 1].kind != CharClass::kSpace;
  if (word_follows && text[chars[begin].offset] == ' ') return end_of_run(chars, begin + 1, end);
  const std::size_t run_end = end_of_run(chars, begin, end);
  // The last white space before a word is left to that word, unless it is all there is.
  return run_end == end || run_end == begin + 1 ? run_end : run_end - 1;
}

}  // namespace

std::vector<std::string_view> pretokenize(std::string_view text) {
  const std::vector<Char> chars = classify(text);
  const std::size_t count = chars.size() - 1;
  std::vector<std::string_view> pieces;
  std::size_t run_end = 0;  // first number at or after `i`, or the end: numbers cut all context
  for (std::size_t i = 0; i < count;) {
    std::size_t next = i + 1;
    if (chars[i].kind != CharClass::kNumber) {
      if (run_end <= i) {
        run_end = i;
        while (chars[run_end].kind != CharClass::kNumber) ++run_end;
      }
      next = end_of_piece(text, chars, i, run_end);
    }
    pieces.push_back(text.substr(chars[i].offset, chars[next].offset - chars[i].offset));
    i = next;
  }
  return pieces;
}

}  // namespace tilewise::generate
