// Where a chunk's result goes: into the block's own fold, to the blocks of the cluster, or to the
// workspace. One copy of the code for the three, since a kernel this short lives from its
// instruction cache.
#pragma once

#include <cstdint>

#include "cuda/tile/decode_cluster.cuh"
#include "cuda/tile/decode_fold.cuh"

namespace tilewise::cuda::tile {

enum class Sink : std::int32_t { kRun, kCluster, kWorkspace };

__device__ inline Sink sink_of(const AttentionParams& p, const DecodeBlock& block) {
  if (p.sharing == plan::CudaSharing::kCluster) return Sink::kCluster;
  return block.parts == 1 ? Sink::kRun : Sink::kWorkspace;
}

template <class V, std::int32_t kTiles>
__device__ inline void share_chunk(DecodeStream<V, kTiles>& stream, const AttentionParams& p,
                                   const DecodeBlock& block, const DecodeMemory& memory,
                                   std::int32_t chunk) {
  constexpr std::int32_t kDim = V::kDim, kRows = 8 * kTiles;
  const Sink sink = sink_of(p, block);
  RunRow* run = run_rows<kDim, kRows>(memory);
  fold_streams(
      stream, memory, block.count,
      [&](std::int32_t row, const StreamWeights& w) {
        if (sink == Sink::kRun) {
          run[row].factors = fold_in(run[row].stats, w.chunk);
        } else if (sink == Sink::kCluster) {
          push_stats<kDim, kRows>(block, memory, row, chunk, w.chunk);
        } else {
          float* to = partial_of(p, block, row, chunk) + p.a.v_head_dim;
          to[0] = w.chunk.maximum;
          to[1] = w.chunk.sum;
        }
      },
      [&](std::int32_t row, std::int32_t column, const float2& values) {
        if (sink == Sink::kRun) {
          auto* at = reinterpret_cast<float2*>(memory.run + row * kDim + column);
          const FoldFactors factors = run[row].factors;
          *at = {fold_value(at->x, values.x, factors), fold_value(at->y, values.y, factors)};
        } else if (sink == Sink::kCluster) {
          push_values<kDim, kRows>(block, memory, row * kDim + column, chunk, values);
        } else if (column < p.a.v_head_dim) {
          *reinterpret_cast<float2*>(partial_of(p, block, row, chunk) + column) = values;
        }
      });
}

}  // namespace tilewise::cuda::tile
