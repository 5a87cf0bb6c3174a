// Class P in plain arithmetic: a block takes packed rows of one request and KV head through the
// tiles of keys that they see, in ascending order, in one online pass.
#pragma once

#include "cuda/kernel/simt/pass.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/prefill_block.cuh"

namespace tilewise::cuda::kernel {

__global__ void __launch_bounds__(core::kSimtThreads, 3)
    simt_prefill(const __grid_constant__ tile::AttentionParams p) {
  char* shared = ptx::dynamic_shared();
  ptx::wait_for_grid();
  tile::PrefillBlock block;
  if (!tile::open_prefill<core::kSimtRows>(p, &block)) return;
  const simt::Memory memory =
      simt::memory_at(shared, core::simt_shared(p.a.head_dim, p.a.v_head_dim, false));
  const simt::Rows rows{block.request, block.kv_head, block.first, block.count};
  simt::open_rows(p, rows, memory);
  if (p.a.append.k != nullptr) {
    tile::append_prefill<core::kSimtRows>(p, block.request.index(), block.kv_head, block.first);
  }
  __syncthreads();
  const tile::KeySpan seen = simt::seen_keys(rows, memory);
  simt::Pass pass(p, memory, block.count);
  for (std::int32_t key = seen.begin & -simt::kKeys; key < seen.end; key += simt::kKeys) {
    simt::find_tile(p, rows, memory, seen, key);
    pass.attend(key);
  }
#pragma unroll
  for (std::int32_t i = 0; i < simt::kWarpRows; ++i) {
    if (i >= pass.rows()) break;
    const tile::OutputRow end = simt::end_row(p, rows, i, pass.stats(i));
    pass.for_each_pair(i, [&](std::int32_t column, const float2& values) {
      tile::store_pair(p.a, end.offset + column, end.value(values.x), end.value(values.y));
    });
  }
}

}  // namespace tilewise::cuda::kernel
