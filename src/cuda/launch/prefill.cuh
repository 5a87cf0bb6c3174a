// Launch body of class P on tensor cores.
#pragma once

#include "core/tile_shapes.h"
#include "cuda/kernel/sm80/prefill.cuh"
#include "cuda/launch/launch.h"
#include "cuda/launch/runtime.cuh"

namespace tilewise::cuda {

template <class V, class Shape, bool kPaged>
struct PrefillKernel;  // names an instance

template <class V, class Shape, bool kPaged>
core::Status start_prefill(const AttentionLaunch& launch) {
  const auto kernel = kernel::prefill<V, Shape, kPaged>;
  TW_TRY((prepare_kernel<PrefillKernel<V, Shape, kPaged>>(kernel, false)));
  constexpr core::PrefillShape kShape = Shape::kShape;
  return start(kernel,
               {launch.params.prefill_blocks * launch.params.a.kv_heads, kShape.threads(),
                core::prefill_shared(V::kDim, kShape).bytes, 1, launch.dependent_launch},
               launch.stream, launch.params);
}

template <class V>
core::Status launch_prefill(const AttentionLaunch& launch) {
  using Shape = core::PlannedPrefill<V::kDim>;
  return launch.params.a.kv.layout == core::KvLayout::kPaged
             ? start_prefill<V, Shape, true>(launch)
             : start_prefill<V, Shape, false>(launch);
}

}  // namespace tilewise::cuda
