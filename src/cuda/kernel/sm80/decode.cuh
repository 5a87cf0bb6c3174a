// Class D on tensor cores: a block takes packed rows of one request and KV head through chunks of
// its keys and folds them, alone or with the other blocks that share the rows.
#pragma once

#include "cuda/ptx/cluster.cuh"
#include "cuda/tile/decode_ring.cuh"
#include "cuda/tile/decode_share.cuh"
#include "cuda/tile/decode_stream.cuh"

namespace tilewise::cuda::kernel {

// kTiles: groups of 8 packed rows of a block.
template <class V, std::int32_t kTiles, bool kPaged>
__global__ void __launch_bounds__(core::kDecodeThreads, 2)
    decode(const __grid_constant__ tile::AttentionParams p) {
  constexpr std::int32_t kRows = 8 * kTiles;
  char* shared = ptx::dynamic_shared();
  ptx::wait_for_grid();
  tile::DecodeBlock block;
  if (!tile::open_block<kRows>(p, &block)) return;
  if (p.sharing == plan::CudaSharing::kCluster) ptx::cluster_arrive_relaxed();
  const tile::StagedQueries<V::kDim, kRows> queries(p, block);
  const tile::DecodeMemory memory = tile::decode_memory(shared, p.shared);
  tile::open_rows<kRows>(p, block, memory);
  queries.store(memory);
  const tile::Sink sink = tile::sink_of(p, block);
  if (sink == tile::Sink::kRun) tile::clear_run<V::kDim, kRows>(memory);
  if (block.part == 0 && block.first_rows && p.a.append.k != nullptr) {
    tile::append_request(p, block.request.index(), block.kv_head);
  }
  __syncthreads();
  const tile::SeenKeys seen = tile::sum_up<kRows>(block, memory);
  const std::int32_t warp = ptx::uniform(static_cast<std::int32_t>(threadIdx.x) / 32);
  tile::DecodeRing<V::kDim, kPaged> ring(p, block, seen, memory, warp);
  ring.fill();
  tile::DecodeStream<V, kTiles> stream(p, memory, seen, block.count);

  for (std::int32_t chunk = block.part; chunk < block.chunks.count; chunk += block.parts) {
    stream.clear();
    const tile::KeySpan tiles = tile::tiles_of(block.chunks, chunk, seen.any);
    for (std::int32_t key = tiles.begin; key < tiles.end; key += core::kKeyTile) {
      stream.attend(key + warp * core::kStreamKeys, ring);
    }
    // The others' shared memory may be written once they have started.
    if (sink == tile::Sink::kCluster && chunk == block.part) ptx::cluster_wait();
    tile::share_chunk(stream, p, block, memory, chunk);
  }

  if (sink == tile::Sink::kRun) {
    tile::store_run<V::kDim, kRows>(p, block, memory);
  } else if (sink == tile::Sink::kCluster) {
    if (block.part >= block.chunks.count) ptx::cluster_wait();
    ptx::cluster_arrive();
    ptx::cluster_wait();
    tile::fold_slice<V::kDim, kRows>(p, block, memory);
  }
}

}  // namespace tilewise::cuda::kernel
