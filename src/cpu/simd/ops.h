// Row kernels of the small operations, one set for each element type, compiled for every vector
// target that the CPU may have. Rows are contiguous; values stand in float in between. All but gate
// and softcap use single fp32 operations in a fixed order and no fused multiply-add: their bits are
// the same on every target.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace tilewise::cpu {

// Longest row of a head; float buffers on the stack are that long.
constexpr std::int32_t kMaxHeadDim = 512;

// round(x): x rounded to the set's element type, as float.
struct OpsKernels {
  void (*load)(const void* from, std::int64_t count, float* to);
  void (*store)(const float* from, std::int64_t count, void* to);
  // Lane l of 16 sums the squares of elements l, l + 16, ...; then lane l takes lane l + 8, then l
  // + 4, l + 2, l + 1.
  float (*sum_squares)(const float* x, std::int64_t count);
  // y = round(x * factor)
  void (*scale)(const float* x, float factor, std::int64_t count, float* y);
  // y = round((x * factor) * weight)
  void (*scale_weighted)(const float* x, float factor, const float* weight, std::int64_t count,
                         float* y);
  // y = round(round(x * factor) * weight)
  void (*scale_weighted_two_step)(const float* x, float factor, const float* weight,
                                  std::int64_t count, float* y);
  // Pair (a, b) becomes (round(a*cos - b*sin), round(b*cos + a*sin)). Halves: a = x[i], b = x[i +
  // pairs]. Interleaved: a = x[2i], b = x[2i + 1]. Two steps: each product is rounded before they
  // are added.
  void (*rotate_halves)(const float* cosine, const float* sine, std::int64_t pairs, float* x);
  void (*rotate_halves_two_step)(const float* cosine, const float* sine, std::int64_t pairs,
                                 float* x);
  void (*rotate_interleaved)(const float* cosine, const float* sine, std::int64_t pairs, float* x);
  void (*rotate_interleaved_two_step)(const float* cosine, const float* sine, std::int64_t pairs,
                                      float* x);
  // sum += weight * row
  void (*accumulate)(float weight, const void* row, std::int64_t count, float* sum);
  // o = round(o / (1 + exp(-gate))); x = round(cap * tanh(x / cap)); x = round(x * factor)
  void (*gate)(const void* gate, std::int64_t count, void* o);
  void (*softcap)(float cap, std::int64_t count, void* x);
  void (*multiply)(float factor, std::int64_t count, void* x);
};

// The set of `type` for the target in use.
const OpsKernels& ops_kernels(core::DType type);

}  // namespace tilewise::cpu
