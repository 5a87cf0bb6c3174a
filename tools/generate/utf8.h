// UTF-8 for text that may be broken or cut: decoding one character at a time, and replacement of
// what is not valid. Follows the Unicode standard's table of well-formed sequences (chapter 3,
// table 3-7).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tilewise::generate {

enum class Utf8State {
  kValid,
  kInvalid,     // `length` bytes can never be part of a valid sequence (a "maximal subpart")
  kIncomplete,  // all bytes that are left begin a sequence that more bytes could finish
};

struct Utf8Char {
  char32_t code_point;
  std::size_t length;
  Utf8State state;
};

// The first character of `bytes`, which must not be empty.
Utf8Char first_utf8_char(std::string_view bytes);

// `bytes` with U+FFFD for each maximal invalid part.
std::string to_valid_utf8(std::string_view bytes);

void append_utf8(char32_t code_point, std::string* out);

}  // namespace tilewise::generate
