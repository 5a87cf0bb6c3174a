// See config.h.
#include "generate/config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "generate/error.h"

namespace tilewise::generate {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxExtent = 1 << 24;
constexpr std::int64_t kMaxHeadDim = 512;

std::int32_t integer(const json& config, const char* key, std::int64_t low, std::int64_t high) {
  const auto found = config.find(key);
  if (found == config.end()) throw InputError(std::string("config.json: lacks ") + key);
  if (!found->is_number_integer() || (found->is_number_unsigned() && *found > high) ||
      *found < low || *found > high) {
    throw InputError(std::string("config.json: ") + key + " is " + found->dump().substr(0, 40) +
                     ", wanted a whole number of " + std::to_string(low) + " to " +
                     std::to_string(high));
  }
  return found->get<std::int32_t>();
}

double positive(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || !found->is_number() || !(found->get<double>() > 0) ||
      !std::isfinite(found->get<double>())) {
    throw InputError(std::string("config.json: ") + key + " is missing or not a positive number");
  }
  return found->get<double>();
}

// What this runner does not do is refused by name, so that no model runs half right.
void refuse_other_models(const json& config) {
  const auto is_off = [&](const char* key) {
    const auto found = config.find(key);
    return found == config.end() || found->is_null() || *found == false;
  };
  if (config.value("model_type", json()) != "llama") {
    throw InputError("config.json: model_type is not llama");
  }
  if (config.value("hidden_act", json("silu")) != "silu") {
    throw InputError("config.json: hidden_act is not silu");
  }
  for (const char* key : {"attention_bias", "mlp_bias", "rope_scaling", "quantization_config"}) {
    if (!is_off(key)) throw InputError(std::string("config.json: ") + key + " is not supported");
  }
}

std::vector<std::int32_t> end_tokens(const json& config) {
  const json ids = config.value("eos_token_id", json());
  std::vector<std::int32_t> tokens;
  for (const json& id : ids.is_array() ? ids : json::array({ids})) {
    if (id.is_number_integer() && id >= 0 && id < kMaxExtent) tokens.push_back(id);
  }
  return tokens;
}

}  // namespace

json read_json_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path + ": cannot be read");
  try {
    return json::parse(file);
  } catch (const json::exception& error) {
    throw InputError(path + ": " + error.what());
  }
}

ModelConfig parse_config(const json& config) {
  if (!config.is_object()) throw InputError("config.json: not an object");
  refuse_other_models(config);
  ModelConfig out;
  out.hidden = integer(config, "hidden_size", 1, kMaxExtent);
  out.feed_forward = integer(config, "intermediate_size", 1, kMaxExtent);
  out.layers = integer(config, "num_hidden_layers", 1, 1024);
  out.q_heads = integer(config, "num_attention_heads", 1, 4096);
  out.kv_heads = config.contains("num_key_value_heads")
                     ? integer(config, "num_key_value_heads", 1, out.q_heads)
                     : out.q_heads;
  out.head_dim = config.contains("head_dim") ? integer(config, "head_dim", 8, kMaxHeadDim)
                                             : out.hidden / out.q_heads;
  out.vocab = integer(config, "vocab_size", 1, kMaxExtent);
  out.max_positions = integer(config, "max_position_embeddings", 1, kMaxExtent);
  out.rms_eps = static_cast<float>(positive(config, "rms_norm_eps"));
  const json rope = config.value("rope_parameters", json());
  out.rope_base = positive(rope.is_object() ? rope : config, "rope_theta");
  out.tied_embedding = config.value("tie_word_embeddings", json(false)) == true;
  out.end_tokens = end_tokens(config);
  if (out.q_heads % out.kv_heads != 0 || out.head_dim % 8 != 0 || out.head_dim < 8 ||
      out.head_dim > kMaxHeadDim) {
    throw InputError("config.json: heads or head_dim do not fit the library");
  }
  return out;
}

ModelConfig read_config(const std::string& model_dir) {
  ModelConfig config = parse_config(read_json_file(model_dir + "/config.json"));
  const std::string generation = model_dir + "/generation_config.json";
  if (std::filesystem::exists(generation)) {
    const auto tokens = end_tokens(read_json_file(generation));
    if (!tokens.empty()) config.end_tokens = tokens;
  }
  return config;
}

ChatFrame read_chat_frame(const std::string& model_dir) {
  const std::string path = model_dir + "/chat.json";
  const json chat = read_json_file(path);
  const auto text = [&](const char* key) {
    if (!chat.is_object() || !chat.contains(key) || !chat[key].is_string()) {
      throw InputError(path + ": lacks the text " + key);
    }
    return chat[key].get<std::string>();
  };
  return {text("prefix"), text("suffix")};
}

}  // namespace tilewise::generate
