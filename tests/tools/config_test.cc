// config.json: what is read, and what is refused by name.
#include "generate/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "generate/error.h"

namespace tilewise::generate {
namespace {

using nlohmann::json;

json good_config() {
  return {{"model_type", "llama"},       {"hidden_size", 576},
          {"intermediate_size", 1536},   {"num_hidden_layers", 30},
          {"num_attention_heads", 9},    {"num_key_value_heads", 3},
          {"vocab_size", 49152},         {"max_position_embeddings", 8192},
          {"rope_theta", 1e5},           {"rms_norm_eps", 1e-5},
          {"tie_word_embeddings", true}, {"eos_token_id", 2}};
}

TEST(Config, ReadsALlamaAndFillsInWhatMayBeMissing) {
  const ModelConfig config = parse_config(good_config());
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_TRUE(config.tied_embedding);
  EXPECT_EQ(config.end_tokens, std::vector<std::int32_t>{2});
  json no_groups = good_config();
  no_groups.erase("num_key_value_heads");
  EXPECT_EQ(parse_config(no_groups).kv_heads, 9);
}

TEST(Config, FindsTheRotaryBaseInBothPlaces) {
  json config = good_config();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 5e5}, {"rope_type", "default"}};
  EXPECT_EQ(parse_config(config).rope_base, 5e5);
}

TEST(Config, ReadsAListOfEndTokens) {
  json config = good_config();
  config["eos_token_id"] = {2, 7};
  EXPECT_EQ(parse_config(config).end_tokens, (std::vector<std::int32_t>{2, 7}));
}

TEST(Config, RefusesWhatTheRunnerDoesNotDo) {
  const std::pair<const char*, json> changes[] = {{"model_type", "gpt2"},
                                                  {"hidden_act", "gelu"},
                                                  {"attention_bias", true},
                                                  {"rope_scaling", {{"a", 1}}},
                                                  {"hidden_size", 0},
                                                  {"hidden_size", -576},
                                                  {"hidden_size", 1ull << 63},
                                                  {"hidden_size", "576"},
                                                  {"num_hidden_layers", 4000},
                                                  {"num_key_value_heads", 2},
                                                  {"num_key_value_heads", 10},
                                                  {"head_dim", 520},
                                                  {"head_dim", 12},
                                                  {"vocab_size", nullptr},
                                                  {"rms_norm_eps", 0},
                                                  {"rope_theta", "big"}};
  for (const auto& [key, value] : changes) {
    json config = good_config();
    config[key] = value;
    EXPECT_THROW(parse_config(config), InputError) << key << ' ' << value;
  }
  EXPECT_THROW(parse_config(json::array()), InputError);
}

}  // namespace
}  // namespace tilewise::generate
