// A Llama-type decoder on float32 activations. Attention, rotary embedding and the cache go through
// the library's C ABI; products, norms and activation are the command's own.
#pragma once

#include <tilewise/tilewise.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "generate/config.h"
#include "generate/kv_cache.h"
#include "generate/thread_pool.h"
#include "generate/weights.h"

namespace tilewise::generate {

// A call of the library failed.
class LibraryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// New rows of several requests, one after another: request i of the step has rows
// indptr[i] .. indptr[i + 1] of `tokens`.
struct Step {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> indptr = {0};
  std::vector<std::int32_t> requests;  // row of each in the cache's block table
  std::vector<std::int32_t> kv_lens;   // length of each with the new rows
  std::vector<std::int32_t> wanted;    // rows whose logits are asked for

  void add(std::int32_t request, std::int32_t kv_len, const std::int32_t* begin,
           const std::int32_t* end);
  std::int32_t rows() const { return indptr.back(); }
};

class Model {
 public:
  // Requests of at most `max_positions` rows; the cache's shape must fit `config`.
  Model(const ModelConfig& config, const Weights& weights, ThreadPool& pool,
        std::int32_t max_positions);

  // Runs the step: its rows go into the cache, whose pages must have been reserved. Returns logits
  // [wanted, vocab], valid until the next call. Throws LibraryError.
  const float* forward(const Step& step, KvCache& cache, tw_dtype cache_dtype);

 private:
  struct Rope {
    std::vector<float> cos, sin;
  };

  void embed(const Step& step);
  void norm_rows(const std::vector<float>& weight, bool add_delta, std::int64_t rows);
  void attend(const Step& step, const tw_kv_cache& kv, tw_dtype cache_dtype);
  void rotate_and_store(const Step& step, const tw_kv_cache& kv, tw_dtype cache_dtype);
  void feed_forward(const LayerWeights& layer, std::int64_t rows);
  const float* head(const Step& step);
  std::byte* workspace(std::uint64_t bytes);
  template <class Body>
  void for_rows(std::int64_t rows, Body body);

  const ModelConfig config_;
  const Weights& weights_;
  ThreadPool& pool_;
  tw_target target_{};
  std::int32_t max_positions_;
  Rope rope_;
  std::vector<float> hidden_, normed_, qkv_, attended_, gate_up_, delta_, logits_;
  std::vector<std::byte> workspace_;
};

}  // namespace tilewise::generate
