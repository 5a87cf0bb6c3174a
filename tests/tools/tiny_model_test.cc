// The whole runner on a small random model: its greedy tokens against float64 arithmetic, and what
// must not change them: page size, threads, neighbours, the length of a prefill step.
#include "tests/tools/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "generate/generate.h"
#include "tests/tools/random_numbers.h"

namespace tilewise::generate {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

constexpr double kRopeBase = 1000.0;
constexpr double kEps = 1e-5;

// One token for each printable ASCII character, in order from the space; no merges.
json tiny_tokenizer(std::int64_t vocab) {
  json tokens;
  for (std::int64_t i = 0; i < vocab; ++i) {
    tokens[i == 0 ? "\u0120" : std::string(1, static_cast<char>(' ' + i))] = i;
  }
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}}},
          {"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", json::array()}}}};
}

}  // namespace

TinyModel::TinyModel(bool tied_embedding) {
  const TinyShape& s = shape_;
  add_tensor("model.embed_tokens.weight", s.vocab, s.hidden);
  if (!tied_embedding) add_tensor("lm_head.weight", s.vocab, s.hidden);
  add_tensor("model.norm.weight", s.hidden, 0);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add_tensor(layer + "self_attn.q_proj.weight", s.q_heads * s.head_dim, s.hidden);
    add_tensor(layer + "self_attn.k_proj.weight", s.kv_heads * s.head_dim, s.hidden);
    add_tensor(layer + "self_attn.v_proj.weight", s.kv_heads * s.head_dim, s.hidden);
    add_tensor(layer + "self_attn.o_proj.weight", s.hidden, s.q_heads * s.head_dim);
    add_tensor(layer + "mlp.gate_proj.weight", s.feed_forward, s.hidden);
    add_tensor(layer + "mlp.up_proj.weight", s.feed_forward, s.hidden);
    add_tensor(layer + "mlp.down_proj.weight", s.hidden, s.feed_forward);
    add_tensor(layer + "input_layernorm.weight", s.hidden, 0);
    add_tensor(layer + "post_attention_layernorm.weight", s.hidden, 0);
  }
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  folder_ = testing::TempDir() + "tilewise_tiny_" + test->test_suite_name() + "_" + test->name();
  std::replace(folder_.begin() + 1, folder_.end(), '\\', '_');
  write_files(tied_embedding);
}

TinyModel::~TinyModel() { std::filesystem::remove_all(folder_); }

void TinyModel::add_tensor(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const auto size = static_cast<std::size_t>(rows * std::max<std::int64_t>(columns, 1));
  const auto seed = static_cast<std::uint32_t>(tensors_.size());
  tensors_[name] = {rows, columns, random_bf16(size, seed)};
}

void TinyModel::write_files(bool tied_embedding) const {
  std::filesystem::create_directories(folder_);
  json header;
  std::string data;
  for (const auto& [name, tensor] : tensors_) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bits.data()), 2 * tensor.bits.size());
    const json shape = tensor.columns == 0 ? json{tensor.rows} : json{tensor.rows, tensor.columns};
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream file(folder_ + "/model.safetensors", std::ios::binary);
  const auto length = static_cast<std::uint64_t>(text.size());
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << data;
  const TinyShape& s = shape_;
  std::ofstream(folder_ + "/config.json") << json{{"model_type", "llama"},
                                                  {"hidden_size", s.hidden},
                                                  {"intermediate_size", s.feed_forward},
                                                  {"num_hidden_layers", s.layers},
                                                  {"num_attention_heads", s.q_heads},
                                                  {"num_key_value_heads", s.kv_heads},
                                                  {"head_dim", s.head_dim},
                                                  {"vocab_size", s.vocab},
                                                  {"max_position_embeddings", 2048},
                                                  {"rope_theta", kRopeBase},
                                                  {"rms_norm_eps", kEps},
                                                  {"tie_word_embeddings", tied_embedding}};
  std::ofstream(folder_ + "/tokenizer.json") << tiny_tokenizer(s.vocab);
}

TinyModel::Rows TinyModel::multiply(const Rows& x, const std::string& name) const {
  const Values& w = tensors_.at(name);
  Rows y(x.size(), std::vector<double>(static_cast<std::size_t>(w.rows), 0.0));
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t n = 0; n < y[r].size(); ++n) {
      for (std::size_t k = 0; k < x[r].size(); ++k) {
        y[r][n] += x[r][k] * double{bf16_float(w.bits[n * x[r].size() + k])};
      }
    }
  }
  return y;
}

TinyModel::Rows TinyModel::norm(const Rows& x, const std::string& name) const {
  const Values& weight = tensors_.at(name);
  Rows y = x;
  for (auto& row : y) {
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(row.size()) + kEps);
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] *= factor * double{bf16_float(weight.bits[i])};
  }
  return y;
}

void TinyModel::rotate(Rows* x) const {
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  for (std::size_t position = 0; position < x->size(); ++position) {
    auto& row = (*x)[position];
    for (std::size_t head = 0; head < row.size(); head += dim) {
      for (std::size_t d = 0; d < dim / 2; ++d) {
        const double frequency =
            std::pow(kRopeBase, -2.0 * static_cast<double>(d) / static_cast<double>(dim));
        const double angle = static_cast<double>(position) * frequency;
        const double a = row[head + d];
        const double b = row[head + d + dim / 2];
        row[head + d] = a * std::cos(angle) - b * std::sin(angle);
        row[head + d + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
}

TinyModel::Rows TinyModel::attention(const Rows& x, const std::string& layer) const {
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  const auto group = static_cast<std::size_t>(shape_.q_heads / shape_.kv_heads);
  Rows q = multiply(x, layer + "self_attn.q_proj.weight");
  Rows k = multiply(x, layer + "self_attn.k_proj.weight");
  const Rows v = multiply(x, layer + "self_attn.v_proj.weight");
  rotate(&q);
  rotate(&k);
  Rows out(x.size(), std::vector<double>(q[0].size(), 0.0));
  for (std::size_t row = 0; row < x.size(); ++row) {
    for (std::size_t head = 0; head < q[0].size() / dim; ++head) {
      const std::size_t kv = head / group * dim;
      std::vector<double> p(row + 1, 0.0);
      double sum = 0;
      for (std::size_t key = 0; key <= row; ++key) {
        for (std::size_t d = 0; d < dim; ++d) p[key] += q[row][head * dim + d] * k[key][kv + d];
        p[key] = std::exp(p[key] / std::sqrt(static_cast<double>(dim)));
        sum += p[key];
      }
      for (std::size_t key = 0; key <= row; ++key) {
        for (std::size_t d = 0; d < dim; ++d)
          out[row][head * dim + d] += p[key] / sum * v[key][kv + d];
      }
    }
  }
  return multiply(out, layer + "self_attn.o_proj.weight");
}

TinyModel::Rows TinyModel::feed_forward(const Rows& x, const std::string& layer) const {
  Rows gate = multiply(x, layer + "mlp.gate_proj.weight");
  const Rows up = multiply(x, layer + "mlp.up_proj.weight");
  for (std::size_t r = 0; r < gate.size(); ++r) {
    for (std::size_t i = 0; i < gate[r].size(); ++i)
      gate[r][i] *= up[r][i] / (1 + std::exp(-gate[r][i]));
  }
  return multiply(gate, layer + "mlp.down_proj.weight");
}

std::vector<double> TinyModel::logits(const Ids& ids) const {
  const Values& embedding = tensors_.at("model.embed_tokens.weight");
  Rows x;
  for (const std::int32_t id : ids) {
    x.emplace_back();
    for (std::int64_t i = 0; i < shape_.hidden; ++i) {
      const auto index = static_cast<std::size_t>(id * shape_.hidden + i);
      x.back().push_back(double{bf16_float(embedding.bits[index])});
    }
  }
  const auto add = [&](const Rows& delta) {
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (std::size_t i = 0; i < x[r].size(); ++i) x[r][i] += delta[r][i];
    }
  };
  for (std::int64_t i = 0; i < shape_.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(attention(norm(x, layer + "input_layernorm.weight"), layer));
    add(feed_forward(norm(x, layer + "post_attention_layernorm.weight"), layer));
  }
  const char* head =
      tensors_.count("lm_head.weight") != 0 ? "lm_head.weight" : "model.embed_tokens.weight";
  return multiply(norm({x.back()}, "model.norm.weight"), head)[0];
}

Ids TinyModel::greedy(Ids ids, std::int64_t count) const {
  Ids out;
  while (static_cast<std::int64_t>(out.size()) < count) {
    const auto scores = logits(ids);
    const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
    out.push_back(static_cast<std::int32_t>(best));
    ids.push_back(out.back());
  }
  return out;
}

namespace {

struct Finished {
  int status;
  std::string out, err;
  json document() const { return json::parse(out); }
};

Finished run(const GenerateOptions& options) {
  std::ostringstream out;
  std::ostringstream err;
  const int status = run_generate(options, out, err);
  return {status, out.str(), err.str()};
}

GenerateOptions options_for(const TinyModel& model, const std::vector<std::string>& prompts) {
  GenerateOptions options;
  options.model_dir = model.folder();
  for (const std::string& prompt : prompts) options.prompts.push_back({false, prompt});
  options.json = true;
  options.max_tokens = 8;
  options.threads = 1;
  return options;
}

Ids ids_of(const std::string& text) {
  Ids ids;
  for (const char c : text) ids.push_back(c - ' ');
  return ids;
}

// A prompt longer than a prefill step, and short ones that share steps with its pieces.
std::vector<std::string> prompts_of_many_lengths() {
  std::string longest;
  for (int i = 0; i < 530; ++i) longest.push_back(static_cast<char>(' ' + i * 37 % 95));
  return {"Hello, world", "a", longest, "The 3rd prompt: 17 + 4"};
}

std::vector<Ids> outputs(const GenerateOptions& options) {
  const Finished done = run(options);
  EXPECT_EQ(done.status, 0) << done.err;
  std::vector<Ids> all;
  if (done.status != 0) return all;
  const json document = done.document();
  for (const json& prompt : document["prompts"]) all.push_back(prompt["output_ids"]);
  return all;
}

TEST(TinyModelTest, GreedyTokensAreThoseOfFloat64) {
  for (const bool tied : {true, false}) {
    const TinyModel model(tied);
    const std::vector<std::string> prompts = {"Hello, world", "a", "The 3rd prompt: 17 + 4"};
    const auto got = outputs(options_for(model, prompts));
    ASSERT_EQ(got.size(), prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(got[i], model.greedy(ids_of(prompts[i]), 8)) << prompts[i];
    }
  }
}

TEST(TinyModelTest, NeitherPagesNorThreadsNorNeighboursChangeTheTokens) {
  const TinyModel model;
  const auto prompts = prompts_of_many_lengths();
  std::vector<Ids> alone;
  for (const std::string& prompt : prompts) {
    alone.push_back(outputs(options_for(model, {prompt})).at(0));
  }
  for (const std::int32_t page_size : {1, 7, 16, 4096}) {
    for (const std::int32_t threads : {1, 3}) {
      GenerateOptions options = options_for(model, prompts);
      options.page_size = page_size;
      options.threads = threads;
      EXPECT_EQ(outputs(options), alone) << page_size << " rows a page, " << threads << " threads";
    }
  }
}

TEST(TinyModelTest, RunsOn16BitCaches) {
  const TinyModel model;
  for (const char* dtype : {"bf16", "fp16"}) {
    GenerateOptions options = options_for(model, {"Hello, world"});
    options.cache_dtype = dtype;
    options.max_tokens = 1;
    const auto scores = model.logits(ids_of("Hello, world"));
    const auto token = static_cast<std::size_t>(outputs(options).at(0).at(0));
    // bf16 keys and values are off by 2^-9 at most: far less than a tenth of these logits' spread.
    EXPECT_GT(scores[token], *std::max_element(scores.begin(), scores.end()) - 1.0) << dtype;
  }
}

TEST(TinyModelTest, StreamsTheTextOfASinglePrompt) {
  const TinyModel model;
  GenerateOptions options = options_for(model, {"abc"});
  const std::string text = run(options).document()["prompts"][0]["text"];
  options.json = false;
  const Finished streamed = run(options);
  EXPECT_EQ(streamed.out, text + "\n");
  EXPECT_NE(streamed.err.find("tokens/s"), std::string::npos);
}

TEST(TinyModelTest, NoTokensMeansReadingThePromptsOnly) {
  const TinyModel model;
  GenerateOptions options = options_for(model, {"Hi!"});
  options.max_tokens = 0;
  const json prompt = run(options).document()["prompts"][0];
  EXPECT_EQ(prompt["prompt_ids"].get<Ids>(), ids_of("Hi!"));
  EXPECT_TRUE(prompt["output_ids"].empty());
}

TEST(TinyModelTest, BadArgumentsEndWithStatus2AndNameTheOption) {
  const TinyModel model;
  const GenerateOptions good = options_for(model, {"x"});
  const auto expect_refused = [](const GenerateOptions& options, const std::string& name) {
    const Finished done = run(options);
    EXPECT_EQ(done.status, 2) << name;
    EXPECT_NE(done.err.find(name), std::string::npos) << done.err;
    EXPECT_EQ(done.out, "");
  };
  GenerateOptions options = good;
  options.backend = "cuda";
  expect_refused(options, "--backend");
  options = good;
  options.prompts.clear();
  expect_refused(options, "--prompt");
  options.prompts = {{true, "/nonexistent"}};
  expect_refused(options, "--prompt-file");
  options.prompts = {{false, ""}};
  expect_refused(options, "--prompt");
  options = good;
  options.ids = true;
  for (const char* ids : {"1 x", "95", "-1", "99999999999999999999", "1.5"}) {
    options.prompts = {{false, ids}};
    expect_refused(options, "--ids");
  }
  options = good;
  options.max_tokens = 2049;
  expect_refused(options, "--max-tokens");
  options = good;
  options.model_dir = "/nonexistent";
  expect_refused(options, "/nonexistent");
}

}  // namespace
}  // namespace tilewise::generate
