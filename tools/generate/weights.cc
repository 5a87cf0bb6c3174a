// See weights.h.
#include "generate/weights.h"

#include "generate/kernels.h"

namespace tilewise::generate {

Weights::Weights(const std::string& path, const ModelConfig& c) : file_(path) {
  const std::int64_t q_columns = std::int64_t{c.q_heads} * c.head_dim;
  const std::int64_t kv_columns = std::int64_t{c.kv_heads} * c.head_dim;
  embedding = matrix("model.embed_tokens.weight", c.vocab, c.hidden);
  head = c.tied_embedding ? embedding : matrix("lm_head.weight", c.vocab, c.hidden);
  final_norm = vector("model.norm.weight", c.hidden);
  for (std::int32_t i = 0; i < c.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    layers.push_back({matrix(attention + "q_proj.weight", q_columns, c.hidden),
                      matrix(attention + "k_proj.weight", kv_columns, c.hidden),
                      matrix(attention + "v_proj.weight", kv_columns, c.hidden),
                      matrix(attention + "o_proj.weight", c.hidden, q_columns),
                      matrix(mlp + "gate_proj.weight", c.feed_forward, c.hidden),
                      matrix(mlp + "up_proj.weight", c.feed_forward, c.hidden),
                      matrix(mlp + "down_proj.weight", c.hidden, c.feed_forward),
                      vector(layer + "input_layernorm.weight", c.hidden),
                      vector(layer + "post_attention_layernorm.weight", c.hidden)});
  }
}

const std::uint16_t* Weights::matrix(const std::string& name, std::int64_t rows,
                                     std::int64_t columns) const {
  const std::vector<std::uint64_t> shape = {static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns)};
  return reinterpret_cast<const std::uint16_t*>(file_.get(name, "BF16", shape).data);
}

std::vector<float> Weights::vector(const std::string& name, std::int64_t n) const {
  const Tensor& tensor = file_.get(name, "BF16", {static_cast<std::uint64_t>(n)});
  std::vector<float> values(static_cast<std::size_t>(n));
  widen_bf16(reinterpret_cast<const std::uint16_t*>(tensor.data), n, values.data());
  return values;
}

}  // namespace tilewise::generate
