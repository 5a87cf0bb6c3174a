// See utf8.h.
#include "generate/utf8.h"

namespace tilewise::generate {
namespace {

// What a lead byte asks for: sequence length (0 = no lead byte) and the bounds of the second byte,
// which exclude overlong forms, surrogates and everything past U+10FFFF.
struct Lead {
  std::size_t length;
  unsigned char second_min, second_max;
  unsigned char payload_mask;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0, 0x7F};
  if (byte < 0xC2) return {0, 0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, 0x1F};
  if (byte == 0xE0) return {3, 0xA0, 0xBF, 0x0F};
  if (byte == 0xED) return {3, 0x80, 0x9F, 0x0F};
  if (byte < 0xF0) return {3, 0x80, 0xBF, 0x0F};
  if (byte == 0xF0) return {4, 0x90, 0xBF, 0x07};
  if (byte < 0xF4) return {4, 0x80, 0xBF, 0x07};
  if (byte == 0xF4) return {4, 0x80, 0x8F, 0x07};
  return {0, 0, 0, 0};
}

}  // namespace

Utf8Char first_utf8_char(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const Lead lead = lead_of(at(0));
  if (lead.length == 0) return {0, 1, Utf8State::kInvalid};
  char32_t value = at(0) & lead.payload_mask;
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {0, i, Utf8State::kIncomplete};
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (at(i) < low || at(i) > high) return {0, i, Utf8State::kInvalid};
    value = (value << 6) | (at(i) & 0x3Fu);
  }
  return {value, lead.length, Utf8State::kValid};
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Char c = first_utf8_char(bytes);
    if (c.state == Utf8State::kValid) {
      out.append(bytes.substr(0, c.length));
    } else {
      append_utf8(0xFFFD, &out);
    }
    bytes.remove_prefix(c.length);
  }
  return out;
}

void append_utf8(char32_t code_point, std::string* out) {
  const auto byte = [&](char32_t bits) { out->push_back(static_cast<char>(bits)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | (code_point >> 6));
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | (code_point >> 12));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | (code_point >> 18));
    byte(0x80 | ((code_point >> 12) & 0x3F));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

}  // namespace tilewise::generate
