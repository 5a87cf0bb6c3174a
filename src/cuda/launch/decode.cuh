// Launch body of class D on tensor cores.
#pragma once

#include "core/tile_shapes.h"
#include "cuda/kernel/sm80/decode.cuh"
#include "cuda/launch/launch.h"
#include "cuda/launch/runtime.cuh"

namespace tilewise::cuda {

template <class V, std::int32_t kTiles, bool kPaged>
struct DecodeKernel;  // names an instance

template <class V, std::int32_t kTiles, bool kPaged>
core::Status start_decode(const AttentionLaunch& launch) {
  const auto kernel = kernel::decode<V, kTiles, kPaged>;
  TW_TRY((prepare_kernel<DecodeKernel<V, kTiles, kPaged>>(kernel, true)));
  const plan::CudaPlan& plan = *launch.plan;
  const bool in_cluster = plan.sharing == plan::CudaSharing::kCluster;
  const core::Attention& a = launch.params.a;
  return start(
      kernel,
      {std::int64_t{a.batch} * a.kv_heads * plan.row_blocks * plan.parts, core::kDecodeThreads,
       plan.shared_bytes, in_cluster ? plan.parts : 1, launch.dependent_launch},
      launch.stream, launch.params);
}

// The smallest instance that holds the rows of a block.
template <class V, bool kPaged, std::int32_t kTiles = core::most_decode_rows(V::kDim) / 8>
core::Status start_decode_of_rows(const AttentionLaunch& launch) {
  if constexpr (kTiles > 1) {
    if (launch.plan->tile_rows <= 4 * kTiles) {
      return start_decode_of_rows<V, kPaged, kTiles / 2>(launch);
    }
  }
  return start_decode<V, kTiles, kPaged>(launch);
}

template <class V>
core::Status launch_decode(const AttentionLaunch& launch) {
  return launch.params.a.kv.layout == core::KvLayout::kPaged
             ? start_decode_of_rows<V, true>(launch)
             : start_decode_of_rows<V, false>(launch);
}

}  // namespace tilewise::cuda
