// A call of tw_attention put together by hand, for what the case model has no words for: shared
// strides, huge pools, refused arguments. Rows of q, o and lse lie packed, [row][head][element]; o
// is float32. Runs on the backend in use; its arrays lie in host memory all the same, but for those
// of a Mapping.
#pragma once

#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device.h"
#include "verify/backend.h"
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
  const std::string& error() const { return error_; }
  // o and lse as bytes.
  std::vector<std::uint8_t> bytes() const;

  tw_attention_args args{};
  tw_kv_cache kv{};
  tw_target target{};
  tw_status_record fault{};
  std::vector<std::uint8_t> q;
  std::vector<float> o, lse;

 private:
  tw_status attend(bool on_device);
  std::string error_;
};

// Runs both calls with every variant of the backend that serves them, the oracle where it is of
// this backend, and expects the same bytes.
void expect_same_bytes(RawCall& a, RawCall& b);

// `elements` of `type` drawn by the seed rule, row-major.
std::vector<std::uint8_t> drawn(std::uint64_t seed, verify::TensorId id, tw_dtype type,
                                Index elements);

// A large array of zeros where the backend in use reads it: on the CPU address space that has no
// memory until it is touched, on CUDA an allocation of the device. Not to be touched but by its
// functions.
class Mapping {
 public:
  explicit Mapping(Index bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Null if there is not as much.
  std::uint8_t* data() const { return data_; }
  void write(Index offset, const std::uint8_t* from, Index bytes) const;
  std::vector<std::uint8_t> read(Index offset, Index bytes) const;

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_;
  std::unique_ptr<tools::DeviceMemory> memory_;  // on CUDA
};

}  // namespace tilewise::tests
