// Class D in a cluster: every block pushes its chunks' results into the shared memory of the
// others, each of which folds a slice of the rows' elements. One cluster barrier lies between.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/decode_fold.cuh"

namespace tilewise::cuda::tile {

// What a block receives: its slice of each chunk, [chunk][element], then the statistics of all
// rows, [row][chunk], which fold_slice() replaces by the factors of the fold.
template <std::int32_t kDim, std::int32_t kRows>
struct ClusterSlices {
  std::int32_t elements, chunks;

  __device__ explicit ClusterSlices(const DecodeBlock& block)
      : elements(kRows * kDim >> block.parts_log2), chunks(block.chunks.count) {}

  __device__ std::int32_t stats(std::int32_t row, std::int32_t chunk) const {
    return chunks * elements + (row * chunks + chunk) * 4;
  }
};

// The chunk's statistics of a row, to every block.
template <std::int32_t kDim, std::int32_t kRows>
__device__ inline void push_stats(const DecodeBlock& block, const DecodeMemory& memory,
                                  std::int32_t row, std::int32_t chunk, const RowStats& stats) {
  const ClusterSlices<kDim, kRows> slices(block);
  const std::uint32_t to = ptx::shared_address(memory.received + slices.stats(row, chunk));
  for (std::int32_t rank = 0; rank < block.parts; ++rank)
    ptx::store_remote(to, static_cast<std::uint32_t>(rank), stats.maximum, stats.sum);
}

// Two neighbouring elements of the chunk's result, to the block that folds them.
template <std::int32_t kDim, std::int32_t kRows>
__device__ inline void push_values(const DecodeBlock& block, const DecodeMemory& memory,
                                   std::int32_t element, std::int32_t chunk, const float2& values) {
  const ClusterSlices<kDim, kRows> slices(block);
  const std::int32_t rank = (element << block.parts_log2) / (kRows * kDim);
  const std::int32_t to = chunk * slices.elements + element - rank * slices.elements;
  ptx::store_remote(ptx::shared_address(memory.received + to), static_cast<std::uint32_t>(rank),
                    values.x, values.y);
}

// The factors by which chunk `chunk` of row `row` enters the row's fold, beside its statistics.
template <std::int32_t kDim, std::int32_t kRows>
__device__ inline void find_factors(const DecodeMemory& memory,
                                    const ClusterSlices<kDim, kRows>& slices, std::int32_t row,
                                    std::int32_t chunk) {
  const float* stats = memory.received + slices.stats(row, 0);
  float before = -INFINITY;  // what a fold of the chunks in front of this one has as its maximum
  for (std::int32_t c = 0; c < chunk; ++c) {
    const float maximum = stats[c * 4];
    before = !(maximum <= before) ? maximum : before;
  }
  RowStats run{before, 0.0f};
  const FoldFactors factors = fold_in(run, {stats[chunk * 4], 0.0f});
  float* to = memory.received + slices.stats(row, chunk);
  to[2] = factors.keep;
  to[3] = factors.take;
}

// Folds and stores this block's slice, two elements a thread.
template <std::int32_t kDim, std::int32_t kRows>
__device__ inline void fold_slice(const AttentionParams& p, const DecodeBlock& block,
                                  const DecodeMemory& memory) {
  const ClusterSlices<kDim, kRows> slices(block);
  const std::int32_t begin = block.part * slices.elements, end = begin + slices.elements;
  const std::int32_t first_row = begin / kDim;
  const std::int32_t last_row = min((end - 1) / kDim, block.count - 1);
  for (std::int32_t i = threadIdx.x; i < (last_row + 1 - first_row) * slices.chunks;
       i += core::kDecodeThreads) {
    find_factors(memory, slices, first_row + i / slices.chunks, i % slices.chunks);
  }
  __syncthreads();
  for (std::int32_t i = threadIdx.x * 2; i < slices.elements; i += core::kDecodeThreads * 2) {
    const std::int32_t row = (begin + i) / kDim, column = (begin + i) % kDim;
    if (row >= block.count || column >= p.a.v_head_dim) continue;
    float2 sum{0.0f, 0.0f};
    RowStats run{-INFINITY, 0.0f};
#pragma unroll 4
    for (std::int32_t c = 0; c < slices.chunks; ++c) {
      const float4 step = *reinterpret_cast<const float4*>(memory.received + slices.stats(row, c));
      const float2 values =
          *reinterpret_cast<const float2*>(memory.received + c * slices.elements + i);
      const FoldFactors factors{step.z, step.w};
      sum = {fold_value(sum.x, values.x, factors), fold_value(sum.y, values.y, factors)};
      // As fold_in() does: a chunk that saw nothing has sum 0, takes 0 and keeps 1.
      run.sum = fmaf(step.y, factors.take, run.sum * factors.keep);
      run.maximum = !(step.x <= run.maximum) ? step.x : run.maximum;
    }
    const PackedRow at = unpack(p, block.kv_head, block.first + row);
    const OutputRow out =
        end_row(p.a, block.request, at.row, at.head, run.maximum, run.sum, column == 0);
    store_pair(p.a, out.offset + column, out.value(sum.x), out.value(sum.y));
  }
}

}  // namespace tilewise::cuda::tile
