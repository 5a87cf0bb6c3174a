// The tokenizer: on a small vocabulary made here, and against the stored answers of an independent
// implementation on the demo's own vocabulary.
#include "generate/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "generate/config.h"
#include "generate/error.h"
#include "tests/tools/model_dir.h"

namespace tilewise::generate {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

// a..f, space, both bytes of e with acute, and three merges; two special tokens, one inside the
// other.
json small_model() {
  const auto pair = [](const char* left, const char* right) { return json::array({left, right}); };
  const json vocab = {{"a", 0},      {"b", 1},  {"c", 2},      {"d", 3},
                      {"e", 4},      {"f", 5},  {"\u0120", 6}, {"\u00C3", 7},
                      {"\u00A9", 8}, {"ab", 9}, {"abc", 10},   {"bc", 11}};
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"added_tokens", {{{"id", 12}, {"content", "<x>"}}, {{"id", 13}, {"content", "<x>y"}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocab},
            {"merges", json::array({pair("b", "c"), pair("a", "b"), pair("a", "bc")})}}}};
}

TEST(Tokenizer, MergesInTheOrderOfTheList) {
  const Tokenizer tokenizer(small_model());
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{10}));
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{9}));
  EXPECT_EQ(tokenizer.encode("abab bc"), (Ids{9, 9, 6, 11}));
}

TEST(Tokenizer, ReadsMergesOfBothSpellings) {
  json model = small_model();
  model["model"]["merges"] = {"b c", "a b", "a bc"};
  EXPECT_EQ(Tokenizer(model).encode("abc"), (Ids{10}));
}

TEST(Tokenizer, SplitsTheLongestSpecialTokenOff) {
  const Tokenizer tokenizer(small_model());
  EXPECT_EQ(tokenizer.encode("a<x>b"), (Ids{0, 12, 1}));
  EXPECT_EQ(tokenizer.encode("<x>ya"), (Ids{13, 0}));
  EXPECT_EQ(tokenizer.decode({12, 0, 13}), "<x>a<x>y");
}

TEST(Tokenizer, LeavesOutBytesThatTheVocabularyLacks) {
  EXPECT_EQ(Tokenizer(small_model())
                .encode("a?\xFF"
                        "b"),
            (Ids{0, 1}));
}

TEST(Tokenizer, DecodesWhatIsOutOfRangeToNothing) {
  EXPECT_EQ(Tokenizer(small_model()).decode({-1, 0, 14, 1 << 30}), "a");
}

TEST(Tokenizer, RefusesOtherKindsOfTokenizer) {
  json model = small_model();
  model["model"]["type"] = "Unigram";
  EXPECT_THROW(Tokenizer{model}, InputError);
  model = small_model();
  model["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_THROW(Tokenizer{model}, InputError);
  model = small_model();
  model["normalizer"] = {{"type", "NFC"}};
  EXPECT_THROW(Tokenizer{model}, InputError);
  model = small_model();
  model["model"]["merges"].push_back(json::array({"a", "q"}));
  EXPECT_THROW(Tokenizer{model}, InputError);
  model = small_model();
  model["model"]["vocab"]["z"] = -4;
  EXPECT_THROW(Tokenizer{model}, InputError);
  EXPECT_THROW(Tokenizer(json::array()), InputError);
}

TEST(StreamDecoder, NeverShowsHalfACharacter) {
  const Tokenizer tokenizer(small_model());
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(7), "");          // first byte of e with acute
  EXPECT_EQ(stream.push(8), "\xC3\xA9");  // whole now
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.push(1),
            "\xEF\xBF\xBD"
            "b");  // it turned out broken
  EXPECT_EQ(stream.push(7), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

class DemoTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    if (has_model()) return;
    if (requires_model()) FAIL() << "there is no model in " << model_dir();
    GTEST_SKIP() << "no model in " << model_dir();
  }
};

TEST_F(DemoTokenizer, GivesTheStoredIdsAndTheTextBack) {
  const Tokenizer tokenizer(read_json_file(model_dir() + "/tokenizer.json"));
  const json cases =
      read_json_file(std::string(TILEWISE_SOURCE_DIR) + "/tests/fixtures/smollm2-tokenizer.json");
  ASSERT_EQ(cases.size(), 61u);
  for (const json& entry : cases) {
    const std::string text = entry["text"];
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, entry["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), text);
  }
}

TEST_F(DemoTokenizer, GivesTheStoredIdsOfThePrompts) {
  const Tokenizer tokenizer(read_json_file(model_dir() + "/tokenizer.json"));
  const json fixture =
      read_json_file(std::string(TILEWISE_SOURCE_DIR) + "/tests/fixtures/smollm2-greedy.json");
  for (const json& entry : fixture["cases"]) {
    EXPECT_EQ(tokenizer.encode(entry["prompt"].get<std::string>()), entry["prompt_ids"].get<Ids>());
    EXPECT_EQ(tokenizer.decode(entry["greedy_ids"].get<Ids>()), entry["text"]);
  }
}

TEST_F(DemoTokenizer, IsQuickOnALongPiece) {
  const Tokenizer tokenizer(read_json_file(model_dir() + "/tokenizer.json"));
  const std::string text(200'000, 'a');  // one piece: a quadratic merge would take minutes
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

}  // namespace
}  // namespace tilewise::generate
