// Class D, second kernel: folds the partial results that the blocks of a row left in the workspace
// (plan/cuda_plan.h), in ascending order, by the arithmetic that every other fold uses.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/fast_divide.h"
#include "core/fold.h"
#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/fold.cuh"
#include "cuda/tile/params.h"

namespace tilewise::cuda::kernel {

constexpr std::int32_t kCombineThreads = 128;
constexpr std::int32_t kCombineColumns = 64;  // of a warp, two a lane
// Chunks whose values are loaded before the first of them is folded: most rows have no more.
constexpr std::int32_t kCombineAhead = 16;

struct CombineParams {
  tile::AttentionParams attention;
  core::FastDivide by_slabs, by_heads,
      by_rows;  // warps of a row and head; heads; rows of a request
};

// What up to 32 chunks do to a running fold, chunk i in lane i.
struct ChunkLanes {
  std::uint32_t seen;  // chunks that saw something; the values of others are not read
  float keep, take;    // as core::FoldStep
  float top, sum;      // maximum up to this chunk; the chunk's own sum
};

// The greater one; a NaN stays, whatever comes behind it.
__device__ inline float greater(float a, float b) { return a != a || b <= a ? a : b; }

// All steps of a fold at once: each depends on maxima alone. `stats`: maximum and sum of the chunk
// of this lane; `before`: the fold's maximum.
__device__ inline ChunkLanes weigh_chunks(const float2& stats, float before) {
  const std::uint32_t lane = threadIdx.x % 32;
  float top = lane == 0 ? greater(before, stats.x) : stats.x;
  for (std::uint32_t distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_up_sync(~0u, top, distance);
    if (lane >= distance) top = greater(other, top);
  }
  const float left = __shfl_up_sync(~0u, top, 1);
  return {__ballot_sync(~0u, stats.x != -INFINITY),
          core::fold_weight(lane == 0 ? before : left, top), core::fold_weight(stats.x, top), top,
          stats.y};
}

// A row's fold at the two columns of this lane.
struct FoldedColumns {
  float maximum, sum;
  float2 values;
};

// Takes in chunks `first` .. of `lanes`; `at`: the columns in the first one, null past the last.
__device__ inline void fold_chunks(const ChunkLanes& lanes, std::int32_t first, const float* at,
                                   std::int64_t chunk_floats, FoldedColumns& run) {
  const std::uint32_t seen = lanes.seen >> first & ((1u << kCombineAhead) - 1);
  float2 values[kCombineAhead];
#pragma unroll
  for (std::int32_t i = 0; i < kCombineAhead; ++i) {
    values[i] = {0.0f, 0.0f};
    if (at != nullptr && (seen >> i & 1) != 0) {
      values[i] = *reinterpret_cast<const float2*>(at + i * chunk_floats);
    }
  }
#pragma unroll
  for (std::int32_t i = 0; i < kCombineAhead; ++i) {
    if ((seen >> i & 1) == 0) continue;
    const tile::FoldFactors factors{__shfl_sync(~0u, lanes.keep, first + i),
                                    __shfl_sync(~0u, lanes.take, first + i)};
    run.sum = tile::fold_value(run.sum, __shfl_sync(~0u, lanes.sum, first + i), factors);
    run.values.x = tile::fold_value(run.values.x, values[i].x, factors);
    run.values.y = tile::fold_value(run.values.y, values[i].y, factors);
  }
}

// `line`: the row's partials; `column`: the first of this lane's two, which may be past the last.
__device__ inline FoldedColumns fold_line(const float* line, std::int32_t chunks,
                                          std::int32_t column, std::int32_t v_head_dim) {
  const std::int32_t lane = threadIdx.x % 32;
  const std::int64_t chunk_floats = v_head_dim + 2;
  FoldedColumns run{-INFINITY, 0.0f, {0.0f, 0.0f}};
  for (std::int32_t first = 0; first < chunks; first += 32) {
    float2 stats{-INFINITY, 0.0f};
    if (first + lane < chunks) {
      stats = *reinterpret_cast<const float2*>(line + (first + lane) * chunk_floats + v_head_dim);
    }
    const ChunkLanes lanes = weigh_chunks(stats, run.maximum);
    for (std::int32_t i = 0; i < 32 && first + i < chunks; i += kCombineAhead) {
      const float* at = line + (first + i) * chunk_floats + column;
      fold_chunks(lanes, i, column < v_head_dim ? at : nullptr, chunk_floats, run);
    }
    run.maximum = __shfl_sync(~0u, lanes.top, 31);
  }
  return run;
}

// A warp for 64 columns of a row and head.
static __global__ void __launch_bounds__(kCombineThreads)
    combine(const __grid_constant__ CombineParams params) {
  ptx::wait_for_grid();
  const tile::AttentionParams& p = params.attention;
  const core::Attention& a = p.a;
  const std::uint32_t warp = (blockIdx.x * kCombineThreads + threadIdx.x) / 32;
  const std::uint32_t line = params.by_slabs.quotient(warp);
  const std::uint32_t slab = params.by_slabs.remainder(warp, line);
  const std::uint32_t row_line = params.by_heads.quotient(line);
  const std::uint32_t request_of = params.by_rows.quotient(row_line);
  const auto r = static_cast<std::int32_t>(request_of);
  if (r >= a.batch) return;
  const auto head = static_cast<std::int32_t>(params.by_heads.remainder(line, row_line));
  const std::int64_t row = params.by_rows.remainder(row_line, request_of);
  const std::int32_t chunks = p.chunk_counts[r];
  tile::Request request{};
  request.cache.request = r;
  request.rows =
      core::request_rows(a.q_indptr, a.q_len, a.total_q, a.max_q_len, r, core::IgnoreFaults{});
  if (chunks == 0 || row >= request.rows.count) return;

  const std::int32_t lane = threadIdx.x % 32;
  const auto column = static_cast<std::int32_t>(slab) * kCombineColumns + 2 * lane;
  const float* partials = p.partials + line * p.max_chunks * plan::cuda_partial_floats(a);
  const FoldedColumns run = fold_line(partials, chunks, column, a.v_head_dim);
  const tile::OutputRow end =
      tile::end_row(a, request, row, head, run.maximum, run.sum, slab == 0 && lane == 0);
  if (column < a.v_head_dim) {
    tile::store_pair(a, end.offset + column, end.value(run.values.x), end.value(run.values.y));
  }
}

}  // namespace tilewise::cuda::kernel
