// Class D in plain arithmetic: a block takes packed rows of one request and KV head through chunks
// of its keys, each from scratch, and folds them itself or leaves them in the workspace.
#pragma once

#include "cuda/kernel/simt/pass.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/decode_block.cuh"

namespace tilewise::cuda::simt {

// The block's own fold of a warp's rows; each element is this thread's alone.
class Run {
 public:
  __device__ Run(const tile::AttentionParams& p, const Memory& memory, const Pass& pass)
      : p_(p), memory_(memory), pass_(pass) {
    if (lane() < pass.rows()) memory.rows[Pass::row(lane())].run = {-INFINITY, 0.0f};
#pragma unroll
    for (std::int32_t i = 0; i < kWarpRows; ++i) {
      if (i >= pass.rows()) break;
      pass.for_each_pair(i, [&](std::int32_t column, const float2&) {
        *pair(i, column) = {0.0f, 0.0f};
      });
    }
  }

  // Takes a chunk in.
  __device__ void fold() {
#pragma unroll
    for (std::int32_t i = 0; i < kWarpRows; ++i) {
      if (i >= pass_.rows()) break;
      tile::RowStats stats = memory_.rows[Pass::row(i)].run;
      const tile::FoldFactors factors = tile::fold_in(stats, pass_.stats(i));
      __syncwarp();
      if (lane() == 0) memory_.rows[Pass::row(i)].run = stats;
      pass_.for_each_pair(i, [&](std::int32_t column, const float2& values) {
        float2& run = *pair(i, column);
        run = {tile::fold_value(run.x, values.x, factors),
               tile::fold_value(run.y, values.y, factors)};
      });
    }
  }

  __device__ void store(const Rows& rows) const {
    __syncwarp();
#pragma unroll
    for (std::int32_t i = 0; i < kWarpRows; ++i) {
      if (i >= pass_.rows()) break;
      const tile::OutputRow end = end_row(p_, rows, i, memory_.rows[Pass::row(i)].run);
      pass_.for_each_pair(i, [&](std::int32_t column, const float2&) {
        const float2 run = *pair(i, column);
        tile::store_pair(p_.a, end.offset + column, end.value(run.x), end.value(run.y));
      });
    }
  }

 private:
  __device__ float2* pair(std::int32_t i, std::int32_t column) const {
    return reinterpret_cast<float2*>(memory_.run + Pass::row(i) * p_.a.v_head_dim + column);
  }

  const tile::AttentionParams& p_;
  const Memory& memory_;
  const Pass& pass_;
};

// Leaves a chunk in the workspace.
__device__ inline void store_partials(const tile::AttentionParams& p,
                                      const tile::DecodeBlock& block, const Pass& pass,
                                      std::int32_t chunk) {
#pragma unroll
  for (std::int32_t i = 0; i < kWarpRows; ++i) {
    if (i >= pass.rows()) break;
    float* to = tile::partial_of(p, block, Pass::row(i), chunk);
    pass.for_each_pair(i, [&](std::int32_t column, const float2& values) {
      *reinterpret_cast<float2*>(to + column) = values;
    });
    const tile::RowStats stats = pass.stats(i);
    if (lane() == 0) *reinterpret_cast<float2*>(to + p.a.v_head_dim) = {stats.maximum, stats.sum};
  }
}

}  // namespace tilewise::cuda::simt

namespace tilewise::cuda::kernel {

__global__ void __launch_bounds__(core::kSimtThreads, 3)
    simt_decode(const __grid_constant__ tile::AttentionParams p) {
  char* shared = ptx::dynamic_shared();
  ptx::wait_for_grid();
  tile::DecodeBlock block;
  if (!tile::open_block<core::kSimtRows>(p, &block)) return;
  const simt::Memory memory =
      simt::memory_at(shared, core::simt_shared(p.a.head_dim, p.a.v_head_dim, true));
  const simt::Rows rows{block.request, block.kv_head, block.first, block.count};
  simt::open_rows(p, rows, memory);
  if (block.part == 0 && block.first_rows && p.a.append.k != nullptr) {
    tile::append_request(p, block.request.index(), block.kv_head);
  }
  __syncthreads();
  const tile::KeySpan seen = simt::seen_keys(rows, memory);
  const bool shares = block.parts > 1;
  simt::Pass pass(p, memory, block.count);
  simt::Run run(p, memory, pass);
  for (std::int32_t chunk = block.part; chunk < block.chunks.count; chunk += block.parts) {
    pass.clear();
    const tile::KeySpan tiles = tile::tiles_of(block.chunks, chunk, seen);
    for (std::int32_t key = tiles.begin; key < tiles.end; key += simt::kKeys) {
      simt::find_tile(p, rows, memory, seen, key);
      pass.attend(key);
    }
    if (shares) {
      simt::store_partials(p, block, pass, chunk);
    } else {
      run.fold();
    }
  }
  if (!shares) run.store(rows);
}

}  // namespace tilewise::cuda::kernel
