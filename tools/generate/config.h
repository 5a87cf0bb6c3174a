// The model folder's JSON files other than weights and tokenizer: config.json (shape of the
// network), generation_config.json (end tokens), chat.json (what stands around a chat message).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tilewise::generate {

// A Llama-type decoder. Every number lies in a range in which products of a few of them fit 64
// bits.
struct ModelConfig {
  std::int32_t hidden = 0;
  std::int32_t feed_forward = 0;
  std::int32_t layers = 0;
  std::int32_t q_heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t vocab = 0;
  std::int32_t max_positions = 0;
  float rms_eps = 0;
  double rope_base = 0;
  bool tied_embedding = false;
  std::vector<std::int32_t> end_tokens;
};

// Text before and after one user message.
struct ChatFrame {
  std::string prefix, suffix;
};

// Each throws InputError with the file's name and what is wrong.
nlohmann::json read_json_file(const std::string& path);
ModelConfig parse_config(const nlohmann::json& config);
ModelConfig read_config(const std::string& model_dir);
ChatFrame read_chat_frame(const std::string& model_dir);

}  // namespace tilewise::generate
