// How text is cut before byte pairs merge.
#include "generate/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewise::generate {
namespace {

using Pieces = std::vector<std::string_view>;

TEST(Pretokenizer, GivesASpaceToTheWordBehindIt) {
  EXPECT_EQ(pretokenize("two words  here"), (Pieces{"two", " words", " ", " here"}));
  EXPECT_EQ(pretokenize("a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(pretokenize("a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
}

TEST(Pretokenizer, KeepsWhiteSpaceAtTheEndTogether) {
  EXPECT_EQ(pretokenize("x   "), (Pieces{"x", "   "}));
  EXPECT_EQ(pretokenize("\t\n"), (Pieces{"\t\n"}));
}

TEST(Pretokenizer, CutsEveryNumberCharacterOut) {
  EXPECT_EQ(pretokenize("a12 3"), (Pieces{"a", "1", "2", " ", "3"}));
  EXPECT_EQ(pretokenize("x \xC2\xBD"), (Pieces{"x", " ", "\xC2\xBD"}));  // one half
  EXPECT_EQ(pretokenize("  7"), (Pieces{"  ", "7"}));                    // no look past a number
}

TEST(Pretokenizer, CutsContractionsInLowerCaseOnly) {
  EXPECT_EQ(pretokenize("we've"), (Pieces{"we", "'ve"}));
  EXPECT_EQ(pretokenize("WE'VE"), (Pieces{"WE", "'", "VE"}));
  EXPECT_EQ(pretokenize("'tis"), (Pieces{"'t", "is"}));
  EXPECT_EQ(pretokenize(" 's"), (Pieces{" '", "s"}));
  EXPECT_EQ(pretokenize("'r1"), (Pieces{"'", "r", "1"}));
}

TEST(Pretokenizer, RunsOfOtherCharactersStayTogether) {
  EXPECT_EQ(pretokenize("f(x)--> y"), (Pieces{"f", "(", "x", ")-->", " y"}));
}

TEST(Pretokenizer, KnowsClassesBeyondAscii) {
  const char* accent = "cafe\xCC\x81";  // a combining mark is no letter
  EXPECT_EQ(pretokenize(accent), (Pieces{"cafe", "\xCC\x81"}));
  EXPECT_EQ(pretokenize("a\xC2\xA0"
                        "b"),
            (Pieces{"a", "\xC2\xA0", "b"}));                             // no-break space
  EXPECT_EQ(pretokenize("x\xC2\x85y"), (Pieces{"x", "\xC2\x85", "y"}));  // next line
  EXPECT_EQ(pretokenize("\xE2\x80\x8B\xE2\x80\x8D"), (Pieces{"\xE2\x80\x8B\xE2\x80\x8D"}));
}

TEST(Pretokenizer, LosesNoByteOfBrokenText) {
  std::string text;
  for (unsigned i = 0; i < 4096; ++i) text.push_back(static_cast<char>(i * 2654435761u >> 13));
  std::string joined;
  for (const auto piece : pretokenize(text)) {
    EXPECT_FALSE(piece.empty());
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  EXPECT_TRUE(pretokenize("").empty());
}

}  // namespace
}  // namespace tilewise::generate
