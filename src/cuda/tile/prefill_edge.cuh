// Tiles of keys that not every row sees, and calls with soft-cap or ALiBi: everything that the
// interior loop of class P leaves out.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/tile/prefill_warp.cuh"

namespace tilewise::cuda::tile {

// Whether logits are a multiple of raw products.
__device__ inline bool is_plain(const AttentionParams& p) {
  return p.a.softcap == 0.0f && p.a.alibi == nullptr;
}

// Scores become logits in log2 units, where they are not plain, and -inf where a row does not see a
// key. `present`: keys of the tile that are there.
template <class V, class Shape>
__device__ inline void hide(const AttentionParams& p, const PrefillBlock& block,
                            const PrefillMemory& memory, std::int32_t key, std::uint64_t present,
                            PrefillWarp<V, Shape>& warp) {
  constexpr std::int32_t kColumns = 2 * PrefillWarp<V, Shape>::kKeySteps;
  const std::int32_t own = warp.lane() % 4 * 2;
  const std::uint64_t there = present >> own;
  const bool plain = is_plain(p), masked = p.a.mask.data != nullptr;
#pragma unroll
  for (std::int32_t t = 0; t < PrefillWarp<V, Shape>::kTiles; ++t) {
#pragma unroll
    for (std::int32_t j = 0; j < 2; ++j) {
      const PrefillRow& kept = memory.rows[warp.row(t, j)];
      const std::int32_t begin = kept.seen.begin - key - own, end = kept.seen.end - key - own;
      if (!plain || masked) {
        const RowInfo row = info_of(p.a, block.request.index(), kept);
#pragma unroll
        for (std::int32_t n = 0; n < kColumns; ++n) {
#pragma unroll
          for (std::int32_t i = 0; i < 2; ++i) {
            float& s = warp.scores[t][n][2 * j + i];
            const std::int32_t at = key + own + 8 * n + i;
            if (!plain) s = transform(p, row, at, s);
            if (masked && !sees(p.a, row, at)) s = -INFINITY;
          }
        }
      }
#pragma unroll
      for (std::int32_t n = 0; n < kColumns; ++n) {
#pragma unroll
        for (std::int32_t i = 0; i < 2; ++i) {
          const std::int32_t at = 8 * n + i;
          const bool seen = at >= begin && at < end && (there >> at & 1u) != 0;
          if (!seen) warp.scores[t][n][2 * j + i] = -INFINITY;
        }
      }
    }
  }
}

// Zeroes rows of V that no row of the block sees: their slots may hold NaN. All threads of a block
// whose warps are done with nothing but the scores call it.
template <std::int32_t kDim, class Shape>
__device__ inline void zero_unseen(const AttentionParams& p, const PrefillBlock& block,
                                   const PrefillMemory& memory, std::int32_t key, std::uint32_t v) {
  constexpr std::int32_t kKeys = Shape::kShape.keys, kThreads = Shape::kShape.threads();
  constexpr std::int32_t kPieces = kDim / 8;
  static_assert(kKeys == 64 && kThreads % kKeys == 0);
  __shared__ std::uint32_t live[kThreads / 32];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  bool seen = false;
  for (std::int32_t r = thread / kKeys; r < block.count && !seen; r += kThreads / kKeys) {
    const RowInfo row = info_of(p.a, block.request.index(), memory.rows[r]);
    seen = sees(p.a, row, key + thread % kKeys);
  }
  const std::uint32_t votes = __ballot_sync(~0u, seen);
  if (thread % 32 == 0) live[thread / 32] = votes;
  __syncthreads();
  for (std::int32_t i = thread; i < kKeys * kPieces; i += kThreads) {
    const std::int32_t r = i / kPieces;
    std::uint32_t any = 0;
    for (std::int32_t w = r / 32; w < kThreads / 32; w += 2) any |= live[w];
    if ((any >> (r % 32) & 1u) == 0) {
      ptx::store_shared_16(v + piece_offset<kPieces>(r, i % kPieces), 0, 0, 0, 0);
    }
  }
  __syncthreads();
}

}  // namespace tilewise::cuda::tile
