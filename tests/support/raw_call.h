// A call of tw_attention put together by hand, for what the case model has no words for: shared
// strides, huge pools, refused arguments. Rows of q, o and lse lie packed, [row][head][element]; o
// is float32.
#pragma once

#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cstdint>
#include <string>
#include <vector>

#include "verify/block.h"
#include "verify/numbers.h"

namespace tilewise::tests {

using verify::at;
using verify::Index;

struct RawShape {
  tw_dtype type;
  Index batch, q_len, q_heads, kv_heads, head_dim;
};

class RawCall {
 public:
  explicit RawCall(const RawShape& shape);

  // Runs with memory of its own for o, lse and workspace, all poisoned before.
  tw_status run(int variant = 0);
  std::string error() const { return tw_last_error(); }
  // o and lse as bytes.
  std::vector<std::uint8_t> bytes() const;

  tw_attention_args args{};
  tw_kv_cache kv{};
  tw_target target{};
  tw_status_record fault{};
  std::vector<std::uint8_t> q;
  std::vector<float> o, lse;
};

// `elements` of `type` drawn by the seed rule, row-major.
std::vector<std::uint8_t> drawn(std::uint64_t seed, verify::TensorId id, tw_dtype type,
                                Index elements);

// Address space without memory until it is touched; reads as zero.
class Mapping {
 public:
  explicit Mapping(Index bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::uint8_t* data() const { return data_; }

 private:
  std::uint8_t* data_;
  std::size_t bytes_;
};

}  // namespace tilewise::tests
