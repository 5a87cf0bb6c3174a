// A timed call: its tensors, its arguments, and what it costs in operations and bytes. Users of the
// C ABI only.
#pragma once

#include <tilewise/tilewise.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "common/variants.h"

namespace tilewise::bench {

// The type of q, cache and output alike.
struct Shape {
  tw_dtype dtype = TW_DTYPE_FP32;
  std::int32_t batch = 1, q_heads = 8, kv_heads = 8, head_dim = 128;
  std::int32_t q_len = 1, kv_len = 1;
  bool causal = false;
  std::int32_t page_size = 0;  // 0 = contiguous
  bool head_major =
      false;  // q, o and cache (or page) in head, token, dim order; else token, head, dim
};

// "hnd" (head, token, dim) or "nhd".
const char* layout_name(const Shape& shape);

const char* dtype_name(tw_dtype dtype);
std::int64_t dtype_bytes(tw_dtype dtype);

class Workload {
 public:
  Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;
  virtual ~Workload() = default;

  // One call; throws tilewise::Error if the library refuses.
  virtual void run() = 0;

  // What tw_attention_explain says will run; number 0 where there is no choice.
  virtual tools::Variant variant() const = 0;

  virtual double flops() const = 0;  // causal work counts the visible half only
  virtual double bytes() const = 0;  // every input and output once
  virtual LimitKind limit() const = 0;
  virtual MemoryRange source() const = 0;  // what a read limit reads: the cache that the call reads
  virtual MemoryRange target() const = 0;  // what a copy limit writes
};

// Memory on a cache line's edge, filled with values of `dtype` that are uniform in [-1, 1).
class Tensor {
 public:
  Tensor(tw_dtype dtype, std::int64_t elements, std::uint64_t seed);
  void* data() const { return data_.get(); }
  std::byte* at(std::int64_t element) const { return data_.get() + element * element_bytes_; }
  MemoryRange range() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::int64_t element_bytes_;
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// Attention over a contiguous cache, or over pages in shuffled order.
std::unique_ptr<Workload> make_attention(const Shape& shape, std::int32_t threads);

// tw_qk_prep of shape.q_len tokens: RMS norm with weights, rotation of whole heads, K and V into a
// contiguous cache.
std::unique_ptr<Workload> make_qk_prep(const Shape& shape, std::int32_t threads);

}  // namespace tilewise::bench
