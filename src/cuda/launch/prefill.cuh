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

template <class V, std::int32_t kStages>
core::Status start_prefill_of_layout(const AttentionLaunch& launch) {
  using Shape = core::PlannedPrefill<V::kDim, kStages>;
  return launch.params.a.kv.layout == core::KvLayout::kPaged
             ? start_prefill<V, Shape, true>(launch)
             : start_prefill<V, Shape, false>(launch);
}

// Shapes whose blocks do not fit 99 KB have a second instance with one stage, for devices where the
// blocks of an SM do not fit it together.
template <class V>
core::Status launch_prefill(const AttentionLaunch& launch) {
  constexpr core::PrefillShape kShape = core::prefill_shape(V::kDim);
  constexpr std::int32_t kBytes = core::prefill_shared(V::kDim, kShape).bytes;
  constexpr std::int32_t kEverywhere = 98 * 1024;  // of a block, beside the kernel's own
  constexpr std::int32_t kBesideBytes = 2 * 1024;  // the kernel's own and the runtime's, of a block
  if constexpr (kBytes > kEverywhere && kShape.stages > 1) {
    int device = 0, per_sm = 0;
    TW_CUDA_TRY(cudaGetDevice(&device));
    TW_CUDA_TRY(
        cudaDeviceGetAttribute(&per_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
    if (per_sm < kShape.blocks * (kBytes + kBesideBytes)) {
      return start_prefill_of_layout<V, 1>(launch);
    }
  }
  return start_prefill_of_layout<V, kShape.stages>(launch);
}

}  // namespace tilewise::cuda
