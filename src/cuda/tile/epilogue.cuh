// The end of a row: its sink enters, its LSE and its outputs are stored.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/fold.h"
#include "cuda/ptx/math.cuh"
#include "cuda/tile/request.cuh"

namespace tilewise::cuda::tile {

// Where row `row`, head `head` of a request goes, and what its accumulated output becomes there.
struct OutputRow {
  std::int64_t offset;  // of o, in elements
  float factor;
  bool empty;  // the row saw nothing

  // + 0: a zero has one sign, whichever keys that a row does not see were added to it as zeros.
  __device__ float value(float accumulated) const {
    return empty ? 0.0f : accumulated * factor + 0.0f;
  }
};

// Ends a row whose maximum (log2 units) and sum are final; stores its LSE if `stores_lse`, which
// one of the threads that call it sets.
__device__ inline OutputRow end_row(const core::Attention& a, const Request& request,
                                    std::int64_t row, std::int32_t head, float maximum, float sum,
                                    bool stores_lse) {
  const bool ragged = a.q_indptr != nullptr;
  if (stores_lse && a.lse != nullptr) {
    a.lse[core::row_offset(a.lse_stride, ragged, request.index(), request.rows, row, head)] =
        core::natural_lse(maximum, sum);
  }
  OutputRow out{core::row_offset(a.o_stride, ragged, request.index(), request.rows, row, head),
                0.0f, maximum == -INFINITY};
  if (out.empty) return out;
  core::SinkResult end{1.0f, sum};
  if (a.sinks != nullptr) end = core::enter_sink(maximum, sum, a.sinks[head]);
  out.factor = end.scale / end.sum;
  return out;
}

// Two neighbouring elements of a row, the first at an even column.
__device__ inline void store_pair(const core::Attention& a, std::int64_t at, float first,
                                  float second) {
  if (a.o_dtype == core::DType::kFp32) {
    float* o = static_cast<float*>(a.o) + at;
    o[0] = first;
    o[1] = second;
    return;
  }
  const std::uint32_t both = a.o_dtype == core::DType::kBf16 ? ptx::pack<core::Bf16>(first, second)
                                                             : ptx::pack<core::Fp16>(first, second);
  *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(a.o) + at) = both;
}

}  // namespace tilewise::cuda::tile
