// Class P on tensor cores: a block takes packed rows of one request and KV head through the tiles
// of keys that they see, in ascending order, in one online pass.
#pragma once

#include <cmath>

#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/prefill_edge.cuh"
#include "cuda/tile/prefill_query.cuh"
#include "cuda/tile/prefill_ring.cuh"
#include "cuda/tile/prefill_store.cuh"

namespace tilewise::cuda::kernel {

// Shape: a core::PrefillShape as a type.
template <class V, class Shape, bool kPaged>
__global__ void __launch_bounds__(Shape::kShape.threads(), Shape::kShape.blocks)
    prefill(const __grid_constant__ tile::AttentionParams p) {
  constexpr core::PrefillShape kShape = Shape::kShape;
  constexpr std::int32_t kWarpRows = kShape.rows / kShape.warps_m;
  using Ring = tile::PrefillRing<V::kDim, Shape, kPaged>;
  char* shared = ptx::dynamic_shared();
  __shared__ std::uint64_t present[Ring::kSlots];
  // Here and not in registers, which the loop needs.
  __shared__ tile::PrefillBlock block;
  __shared__ tile::SeenTogether by_warp[kShape.threads() / 32];
  ptx::wait_for_grid();
  const tile::PrefillMemory memory = tile::prefill_memory<V::kDim, Shape>(shared);
  if (!tile::start_block<V::kDim, Shape>(p, memory, &block)) return;
  const auto first = static_cast<std::int32_t>(threadIdx.x / 32) * kWarpRows;
  tile::SeenTogether& own = by_warp[threadIdx.x / 32];
  const auto seen = tile::see_together(memory, first, min(first + kWarpRows, block.count));
  if (threadIdx.x % 32 == 0) own = seen;
  const bool plain = tile::is_plain(p), masked = p.a.mask.data != nullptr;
  const bool may_hide_between = masked || p.a.q_positions != nullptr;
  const float unit = plain ? fabsf(p.scale_log2) : 1.0f;

  const std::int32_t first_key = block.seen.begin & -kShape.keys;
  tile::PrefillRing<V::kDim, Shape, kPaged> ring(p, block, memory, first_key, present);
  tile::PrefillWarp<V, Shape> warp(first);
  for (std::int32_t key = first_key; key < block.seen.end; key += kShape.keys) {
    const std::uint32_t k = ring.wait_keys(key);
    if (key == first_key) warp.keep_queries(memory.q);
    const bool works = tile::meets(own.any, key, kShape.keys);
    if (works) warp.multiply_qk(memory.q, k);
    ring.wait_values(key);
    if (may_hide_between && (masked || !tile::contains(block.common, key, kShape.keys))) {
      tile::zero_unseen<V::kDim, Shape>(p, block, memory, key, k + Ring::kValuesOn);
    }
    if (!works) continue;
    const std::uint64_t there = ring.present(key);
    if (masked || !plain || !tile::contains(own.common, key, kShape.keys) || ~there != 0) {
      tile::hide(p, block, memory, key, there, warp);
    }
    warp.multiply_pv(k + Ring::kValuesOn, unit);
  }
  ptx::wait_async<0>();
  __syncthreads();
  tile::store_rows(p, block, memory, warp);
}

}  // namespace tilewise::cuda::kernel
