// Launch body of the second kernel of class D.
#pragma once

#include "core/rows.h"
#include "cuda/kernel/any/combine.cuh"
#include "cuda/launch/launch.h"
#include "cuda/launch/runtime.cuh"

namespace tilewise::cuda {

// Numbers of warps stay below 2^31: the planner bounds the partial results to far less.
inline core::Status start_combine(const AttentionLaunch& launch) {
  const core::Attention& a = launch.params.a;
  const std::int64_t slabs = core::divide_up(a.v_head_dim, kernel::kCombineColumns);
  const std::int64_t warps = a.batch * launch.params.request_rows * a.q_heads * slabs;
  const kernel::CombineParams params{launch.params, core::FastDivide(slabs),
                                     core::FastDivide(a.q_heads),
                                     core::FastDivide(launch.params.request_rows)};
  // The grid in front is our own, so this one may always start early.
  return start(
      kernel::combine,
      {core::divide_up(warps, kernel::kCombineThreads / 32), kernel::kCombineThreads, 0, 1, true},
      launch.stream, params);
}

}  // namespace tilewise::cuda
