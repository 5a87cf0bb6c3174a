// The tensors of a Llama checkpoint: matrices as bf16 where the file is mapped, norms widened to
// float32.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/config.h"
#include "generate/safetensors.h"

namespace tilewise::generate {

struct LayerWeights {
  const std::uint16_t *q, *k, *v, *o, *gate, *up, *down;
  std::vector<float> attention_norm, feed_forward_norm;
};

class Weights {
 public:
  // Throws InputError if a tensor is missing or has another type or shape than `config` asks for.
  Weights(const std::string& path, const ModelConfig& config);

  const std::uint16_t* embedding;
  const std::uint16_t* head;  // the embedding's, if the two are tied
  std::vector<float> final_norm;
  std::vector<LayerWeights> layers;

 private:
  const std::uint16_t* matrix(const std::string& name, std::int64_t rows,
                              std::int64_t columns) const;
  std::vector<float> vector(const std::string& name, std::int64_t n) const;

  SafetensorsFile file_;
};

}  // namespace tilewise::generate
