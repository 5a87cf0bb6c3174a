// UTF-8 decoding: what is valid, what is broken, what is only cut.
#include "generate/utf8.h"

#include <gtest/gtest.h>

namespace tilewise::generate {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TEST(Utf8, RoundTripsTheFirstAndLastCodePointOfEachLength) {
  for (const char32_t c :
       {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string bytes;
    append_utf8(c, &bytes);
    const Utf8Char read = first_utf8_char(bytes);
    EXPECT_EQ(read.state, Utf8State::kValid) << c;
    EXPECT_EQ(read.code_point, c);
    EXPECT_EQ(read.length, bytes.size()) << c;
  }
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndWhatIsTooLarge) {
  using namespace std::string_view_literals;
  for (const auto bytes :
       {"\x80"sv, "\xC0\x80"sv, "\xC1\xBF"sv, "\xE0\x9F\xBF"sv, "\xED\xA0\x80"sv,
        "\xF0\x8F\xBF\xBF"sv, "\xF4\x90\x80\x80"sv, "\xF5\x80\x80\x80"sv, "\xFF"sv}) {
    EXPECT_EQ(first_utf8_char(bytes).state, Utf8State::kInvalid);
    EXPECT_EQ(first_utf8_char(bytes).length, 1u);
  }
}

TEST(Utf8, TellsCutSequencesFromBrokenOnes) {
  const std::string emoji = "\xF0\x9F\x98\x80";
  for (std::size_t n = 1; n < emoji.size(); ++n) {
    const Utf8Char cut = first_utf8_char(std::string_view(emoji).substr(0, n));
    EXPECT_EQ(cut.state, Utf8State::kIncomplete) << n;
    EXPECT_EQ(cut.length, n);
    const std::string broken = emoji.substr(0, n) + "a";
    EXPECT_EQ(first_utf8_char(broken).state, Utf8State::kInvalid) << n;
    EXPECT_EQ(first_utf8_char(broken).length, n);
  }
}

TEST(Utf8, ReplacesEachMaximalBrokenPartOnce) {
  EXPECT_EQ(to_valid_utf8("a\xF0\x9F\x98z"), std::string("a") + kReplacement + "z");
  EXPECT_EQ(to_valid_utf8("\xE4\xBD"), kReplacement);
  EXPECT_EQ(to_valid_utf8("\xFF\xFE"), std::string(kReplacement) + kReplacement);
  EXPECT_EQ(to_valid_utf8("caf\xC3\xA9"), "caf\xC3\xA9");
}

}  // namespace
}  // namespace tilewise::generate
