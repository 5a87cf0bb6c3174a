// Folds of class D. A chunk's four streams become one result; then chunks are folded in ascending
// order, by the block itself, by the blocks of a cluster, or by a second kernel from the workspace:
// the same arithmetic on the same numbers, so the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/tile/decode_stream.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/fold.cuh"

namespace tilewise::cuda::tile {

// What a row's four streams weigh in their chunk, and the chunk's maximum and sum: as large as the
// statistics of the row's streams, in whose place it stands.
struct alignas(sizeof(RowStats) * core::kDecodeWarps) StreamWeights {
  float weight[core::kDecodeWarps];
  RowStats chunk;
};
static_assert(sizeof(StreamWeights) == sizeof(RowStats) * core::kDecodeWarps);

// The sum of a row's streams at two neighbouring columns.
template <std::int32_t kRows, std::int32_t kStride>
__device__ inline float2 sum_streams(const DecodeMemory& memory, const StreamWeights& w,
                                     std::int32_t row, std::int32_t column) {
  float2 sum{0.0f, 0.0f};
#pragma unroll
  for (std::int32_t s = 0; s < core::kDecodeWarps; ++s) {
    const float2 part =
        *reinterpret_cast<const float2*>(memory.fold + (s * kRows + row) * kStride + column);
    sum.x = fmaf(part.x, w.weight[s], sum.x);
    sum.y = fmaf(part.y, w.weight[s], sum.y);
  }
  return sum;
}

// Turns the streams' statistics of row `row` into their weights, in place.
template <std::int32_t kRows>
__device__ inline StreamWeights weigh_streams(const DecodeMemory& memory, std::int32_t row) {
  StreamWeights w;
  const auto* streams = reinterpret_cast<const RowStats*>(memory.stats) + row * core::kDecodeWarps;
  w.chunk = {-INFINITY, 0.0f};
#pragma unroll
  for (std::int32_t i = 0; i < core::kDecodeWarps; ++i)
    w.chunk.maximum = fmaxf(w.chunk.maximum, streams[i].maximum);
#pragma unroll
  for (std::int32_t i = 0; i < core::kDecodeWarps; ++i) {
    w.weight[i] = core::fold_weight(streams[i].maximum, w.chunk.maximum);
    w.chunk.sum = fmaf(streams[i].sum, w.weight[i], w.chunk.sum);
  }
  return w;
}

// Puts the warps' streams together, a slab of columns at a time. First weigh(row, weights) by one
// thread a row; then take(row, column, values) for every two neighbouring elements of the block's
// rows, each by the thread that has them in every chunk. Ends with a barrier.
template <class V, std::int32_t kTiles, class Weigh, class Take>
__device__ inline void fold_streams(DecodeStream<V, kTiles>& stream, const DecodeMemory& memory,
                                    std::int32_t rows, Weigh&& weigh, Take&& take) {
  constexpr std::int32_t kRows = 8 * kTiles, kSlab = core::fold_slab(V::kDim);
  constexpr std::int32_t kStride = kSlab + core::kFoldPad;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const auto warp = static_cast<std::int32_t>(threadIdx.x / 32);
  auto* weights = reinterpret_cast<StreamWeights*>(memory.stats);
  stream.gather_sums();
  if (lane < 4) {
#pragma unroll
    for (std::int32_t i = 0; i < 2 * kTiles; ++i) {
      const std::int32_t row = i / 2 * 8 + lane * 2 + i % 2;
      reinterpret_cast<RowStats*>(memory.stats)[row * core::kDecodeWarps + warp] = {
          stream.maximum[i / 2][i % 2], stream.sum[i / 2][i % 2]};
    }
  }
#pragma unroll
  for (std::int32_t slab = 0; slab < V::kDim / kSlab; ++slab) {
#pragma unroll
    for (std::int32_t i = 0; i < kSlab / 16 * kTiles * 4; ++i) {
      const std::int32_t d = i / 4 / kTiles, t = i / 4 % kTiles, e = i % 4;
      const std::int32_t row = 8 * t + lane % 4 * 2 + e % 2;
      const std::int32_t column = 16 * d + lane / 4 + 8 * (e / 2);
      if (row < rows)
        memory.fold[(warp * kRows + row) * kStride + column] =
            stream.output[slab * (kSlab / 16) + d][t][e];
    }
    __syncthreads();
    if (slab == 0) {
      if (threadIdx.x < static_cast<std::uint32_t>(rows)) {
        const auto row = static_cast<std::int32_t>(threadIdx.x);
        const StreamWeights w = weigh_streams<kRows>(memory, row);
        weigh(row, w);
        weights[row] = w;
      }
      __syncthreads();
    }
    for (std::int32_t i = threadIdx.x * 2; i < rows * kSlab; i += core::kDecodeThreads * 2) {
      const std::int32_t row = i / kSlab, column = i % kSlab;
      take(row, slab * kSlab + column,
           sum_streams<kRows, kStride>(memory, weights[row], row, column));
    }
    __syncthreads();
  }
}

// Self: the block's running fold, and the factors of the chunk at hand.
struct RunRow {
  RowStats stats;
  FoldFactors factors;
};

template <std::int32_t kDim, std::int32_t kRows>
__device__ inline RunRow* run_rows(const DecodeMemory& memory) {
  return reinterpret_cast<RunRow*>(memory.run + kRows * kDim);
}

template <std::int32_t kDim, std::int32_t kRows>
__device__ inline void clear_run(const DecodeMemory& memory) {
  for (std::int32_t i = threadIdx.x; i < kRows * kDim; i += core::kDecodeThreads)
    memory.run[i] = 0.0f;
  if (threadIdx.x < kRows) {
    run_rows<kDim, kRows>(memory)[threadIdx.x] = {{-INFINITY, 0.0f}, {1.0f, 0.0f}};
  }
}

// Ends packed row `row` of the block.
__device__ inline OutputRow end_packed_row(const AttentionParams& p, const DecodeBlock& block,
                                           std::int32_t row, const RowStats& stats) {
  const PackedRow at = unpack(p, block.kv_head, block.first + row);
  return end_row(p.a, block.request, at.row, at.head, stats.maximum, stats.sum, true);
}

// Stores the block's own fold.
template <std::int32_t kDim, std::int32_t kRows>
__device__ inline void store_run(const AttentionParams& p, const DecodeBlock& block,
                                 const DecodeMemory& memory) {
  auto* ends = reinterpret_cast<OutputRow*>(memory.fold);
  if (threadIdx.x < static_cast<std::uint32_t>(block.count)) {
    const auto row = static_cast<std::int32_t>(threadIdx.x);
    ends[row] = end_packed_row(p, block, row, run_rows<kDim, kRows>(memory)[row].stats);
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x * 2; i < block.count * kDim; i += core::kDecodeThreads * 2) {
    const std::int32_t row = i / kDim, column = i % kDim;
    if (column >= p.a.v_head_dim) continue;
    const OutputRow& end = ends[row];
    store_pair(p.a, end.offset + column, end.value(memory.run[i]), end.value(memory.run[i + 1]));
  }
}

}  // namespace tilewise::cuda::tile
