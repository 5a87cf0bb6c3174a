// tw_output_gate, tw_softcap and tw_scale: in place, fp32 inside, rounded once.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/ops.h"
#include "cuda/kernel/any/elements.cuh"
#include "cuda/kernel/any/teams.cuh"
#include "cuda/ptx/cluster.cuh"

namespace tilewise::cuda::kernel {

struct GateParams {
  core::OutputGate call;
  std::int32_t team;
};

// By exp of a number that is never positive, so that nothing overflows.
__device__ inline float sigmoid(float x) {
  const float e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// kCount: elements that a thread does at a time.
template <std::int32_t kCount>
__global__ void __launch_bounds__(kOpThreads)
    output_gate(const __grid_constant__ GateParams params) {
  ptx::wait_for_grid();
  const core::OutputGate& p = params.call;
  const TeamThread thread = team_thread(params.team);
  if (thread.row >= p.rows) return;
  for (GroupWalk at(thread, p.head_dim / kCount); at.head < p.heads; at.next()) {
    const std::int64_t element = std::int64_t{at.group} * kCount;
    const std::int64_t o = thread.row * p.o_row_stride + at.head * p.o_head_stride + element;
    const std::int64_t gate =
        thread.row * p.gate_row_stride + at.head * p.gate_head_stride + element;
    float x[kCount], g[kCount];
    load_group<kCount>(p.o, p.dtype, o, x);
    load_group<kCount>(p.gate, p.dtype, gate, g);
#pragma unroll
    for (std::int32_t i = 0; i < kCount; ++i) x[i] *= sigmoid(g[i]);
    store_group<kCount>(p.o, p.dtype, o, x);
  }
}

__device__ inline float apply(const core::Elementwise& p, float x) {
  return p.op == core::ElementwiseOp::kSoftcap ? p.value * tanhf(x / p.value) : x * p.value;
}

// A thread does kCount elements; those of the last, shorter group one after the other.
template <std::int32_t kCount>
__global__ void __launch_bounds__(kOpThreads)
    elementwise(const __grid_constant__ core::Elementwise p) {
  ptx::wait_for_grid();
  const std::int64_t at = grid_thread() * kCount;
  if (at + kCount <= p.n) {
    float x[kCount];
    load_group<kCount>(p.x, p.dtype, at, x);
#pragma unroll
    for (std::int32_t i = 0; i < kCount; ++i) x[i] = apply(p, x[i]);
    store_group<kCount>(p.x, p.dtype, at, x);
    return;
  }
  for (std::int64_t i = at; i < p.n; ++i) {
    core::store_element(p.x, p.dtype, i, apply(p, core::load_element(p.x, p.dtype, i)));
  }
}

}  // namespace tilewise::cuda::kernel
