// tw_merge_states: attention states that carry natural-log LSEs become one, in ascending order. The
// arithmetic is the CPU's but for the exponential and the logarithm.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/merge.h"
#include "core/ops.h"
#include "cuda/kernel/any/elements.cuh"
#include "cuda/kernel/any/teams.cuh"
#include "cuda/ptx/cluster.cuh"

namespace tilewise::cuda::kernel {

struct MergeParams {
  core::MergeStates call;
  std::int32_t team;
};

// One row and head of all states.
struct MergeRow {
  const float* lse;
  std::int64_t lse_stride;
  const void* o;
  void* out;

  __device__ float lse_of(std::int64_t state) const { return lse[state * lse_stride]; }
};

__device__ inline MergeRow merge_row(const core::MergeStates& p, std::int64_t row,
                                     std::int64_t head) {
  return {p.lse + row * p.lse_row_stride + head * p.lse_head_stride, p.lse_state_stride,
          element_address(p.o, p.dtype, row * p.o_row_stride + head * p.o_head_stride),
          element_address(p.out, p.out_dtype, row * p.out_row_stride + head * p.out_head_stride)};
}

// The weighted sum of the states at elements [at, at + kCount), times `factor`. `out` may be a
// state's own row: it is written last.
template <std::int32_t kCount>
__device__ inline void write_sum(const core::MergeStates& p, const MergeRow& row, std::int64_t at,
                                 float top, float factor) {
  float sum[kCount] = {};
  for (std::int64_t s = 0; s < p.states; ++s) {
    const float lse = row.lse_of(s);
    if (lse == -INFINITY) continue;
    const float weight = expf(lse - top);
    float x[kCount];
    load_group<kCount>(row.o, p.dtype, s * p.o_state_stride + at, x);
#pragma unroll
    for (std::int32_t i = 0; i < kCount; ++i) sum[i] += weight * x[i];
  }
#pragma unroll
  for (std::int32_t i = 0; i < kCount; ++i) sum[i] *= factor;
  store_group<kCount>(row.out, p.out_dtype, at, sum);
}

// kCount: elements that a thread does at a time.
template <std::int32_t kCount>
__global__ void __launch_bounds__(kOpThreads)
    merge_states(const __grid_constant__ MergeParams params) {
  ptx::wait_for_grid();
  const core::MergeStates& p = params.call;
  const TeamThread thread = team_thread(params.team);
  if (thread.row >= p.rows * p.heads) return;
  const std::int64_t head = thread.row % p.heads;
  const MergeRow row = merge_row(p, thread.row / p.heads, head);
  const core::StateWeights w =
      core::weigh_states(p.states, [&row](std::int64_t s) { return row.lse_of(s); });
  const float sink = p.sinks != nullptr ? p.sinks[head] : -INFINITY;
  // The only state that saw anything comes back as it was.
  const bool alone = w.seen == 1 && sink == -INFINITY;
  const float factor = alone ? 1.0f : core::merge_factor(w, sink);
  for (std::int64_t at = thread.lane * kCount; at < p.v_head_dim; at += thread.size * kCount) {
    if (alone && p.dtype == p.out_dtype) {
      copy_group<kCount>(element_address(row.out, p.dtype, at),
                         element_address(row.o, p.dtype, w.last * p.o_state_stride + at), p.dtype);
    } else {
      write_sum<kCount>(p, row, at, w.top, factor);
    }
  }
  // `out_lse` may be a state's own: the rest of the team has read it.
  sync_team(thread);
  if (thread.lane == 0 && p.out_lse != nullptr) {
    p.out_lse[thread.row / p.heads * p.out_lse_row_stride + head * p.out_lse_head_stride] =
        core::merged_lse(w);
  }
}

}  // namespace tilewise::cuda::kernel
