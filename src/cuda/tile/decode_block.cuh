// A block of class D: which rows and chunks it has, its shared memory, and the walk over its tiles.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "core/tile_shapes.h"
#include "cuda/ptx/memory.cuh"
#include "cuda/tile/request.cuh"

namespace tilewise::cuda::tile {

// Arrays in the dynamic shared memory of a decode block (core::decode_shared).
struct DecodeMemory {
  std::uint32_t ring, q;  // shared addresses, for asynchronous copies and matrix loads
  char* q_bytes;
  float* fold;   // [warp][row][slab + pad]
  float* stats;  // [warp][row]{maximum, sum}, then what fold_streams() makes of them
  float* run;    // [row][dim], then [row]{maximum, sum}: the chunks folded so far
  RowInfo* rows;
  std::uint32_t* holes;  // [warp][stage]
  float* received;       // what other blocks of the cluster push
};

__device__ inline DecodeMemory decode_memory(char* base, const core::DecodeShared& at) {
  static_assert(sizeof(RowInfo) <= 64);
  return {ptx::shared_address(base + at.ring),
          ptx::shared_address(base + at.q),
          base + at.q,
          reinterpret_cast<float*>(base + at.fold),
          reinterpret_cast<float*>(base + at.stats),
          reinterpret_cast<float*>(base + at.run),
          reinterpret_cast<RowInfo*>(base + at.rows),
          reinterpret_cast<std::uint32_t*>(base + at.holes),
          reinterpret_cast<float*>(base + at.received)};
}

// Rare work of one block of a request, kept out of the way of all others: it opens the request
// anew.
__device__ __noinline__ inline void append_request(const AttentionParams& p, std::int32_t r,
                                                   std::int32_t kv_head) {
  const Request request = open_request(p.a, r, Report{nullptr});
  append_rows(p.a, request, kv_head, 0, request.rows.count, Report{p.faults});
}

__device__ __noinline__ inline void check_request_of(const AttentionParams& p, std::int32_t r) {
  check_request(p.a, open_request(p.a, r, Report{nullptr}), Report{p.faults});
}

// The chunks of a request, in keys as kernels count them.
struct ChunkSpans {
  std::int32_t begin, end, keys, count;

  __device__ KeySpan span(std::int32_t i) const {
    const std::int32_t first = begin + i * keys;
    return {first, i + 1 < count ? first + keys : end};
  }
};

// What a block works on; the same in all its threads.
struct DecodeBlock {
  Request request;
  std::int32_t kv_head, part, parts;
  std::int32_t parts_log2;  // of a cluster's parts
  std::int64_t first;       // packed row of row 0
  std::int32_t count;       // rows
  bool first_rows;          // the first block of rows of its request
  ChunkSpans chunks;
};

// Lengths of all requests of a batch, summed by the block.
__device__ inline std::int64_t total_keys(const core::Attention& a) {
  __shared__ unsigned long long total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  std::int64_t mine = 0;
  for (std::int32_t r = threadIdx.x; r < a.batch; r += blockDim.x)
    mine += core::open_request(a.kv, r, core::IgnoreFaults{}).len;
  atomicAdd(&total, static_cast<unsigned long long>(mine));
  __syncthreads();
  return static_cast<std::int64_t>(total);
}

// Blocks that share a row: by its length, and where the batch is uneven by its share of all keys,
// so that the longest row does not keep one block busy after all others have ended.
__device__ inline std::int32_t parts_of(const AttentionParams& p, const ChunkSpans& chunks) {
  if (p.sharing != plan::CudaSharing::kSplit) return p.parts;
  std::int64_t keys = p.keys_of_part;
  if (p.balances) {
    const std::int64_t fair = total_keys(p.a) * p.a.kv_heads * p.row_blocks / p.fair_shares;
    keys = fair > keys ? fair : keys;
  }
  const std::int64_t wanted = (chunks.end - chunks.begin) / keys;
  const std::int32_t most = p.parts < chunks.count ? p.parts : chunks.count;
  return wanted < 1 || most < 1 ? 1 : wanted < most ? static_cast<std::int32_t>(wanted) : most;
}

__device__ inline ChunkSpans cut(const AttentionParams& p, const Request& request) {
  const core::Chunks chunks = core::cut_chunks(
      core::first_visible_key(p.a, request.index(), request.rows, request.cache.len),
      request.cache.len, p.a.kv_heads);
  return {static_cast<std::int32_t>(chunks.begin), static_cast<std::int32_t>(chunks.end),
          static_cast<std::int32_t>(chunks.keys), static_cast<std::int32_t>(chunks.count)};
}

// False if there is nothing to do here: another class, no rows, or a part too many. `kRows`: packed
// rows of a block.
template <std::int32_t kRows>
__device__ inline bool open_block(const AttentionParams& p, DecodeBlock* block) {
  std::uint32_t at = blockIdx.x;
  std::uint32_t next = p.by_parts.quotient(at);
  block->part = static_cast<std::int32_t>(p.by_parts.remainder(at, next));
  at = next;
  next = p.by_kv_heads.quotient(at);
  block->kv_head = static_cast<std::int32_t>(p.by_kv_heads.remainder(at, next));
  at = next;
  next = p.by_row_blocks.quotient(at);
  const std::uint32_t row_block = p.by_row_blocks.remainder(at, next);
  const auto r = static_cast<std::int32_t>(next);
  block->first_rows = row_block == 0;
  const bool first_of_request = block->part == 0 && block->kv_head == 0 && row_block == 0;
  block->request =
      open_request(p.a, r, Report{first_of_request && threadIdx.x == 0 ? p.faults : nullptr});
  const Request& request = block->request;
  const std::int64_t rows = request.rows.count;
  const bool mine =
      core::row_class(rows, p.a.forced_class) == core::RowClass::kDecode && rows <= p.request_rows;
  if (first_of_request && mine && p.faults != nullptr) check_request_of(p, r);
  block->chunks = mine ? cut(p, request) : ChunkSpans{0, 0, 0, 0};
  block->parts = mine ? parts_of(p, block->chunks) : 1;
  block->parts_log2 = __ffs(block->parts) - 1;
  if (first_of_request && threadIdx.x == 0 && p.sharing == plan::CudaSharing::kSplit) {
    p.chunk_counts[r] = block->parts > 1 ? block->chunks.count : 0;
  }
  block->first = std::int64_t{row_block} * kRows;
  const std::int64_t left = rows * p.group.divisor() - block->first;
  block->count = left < kRows ? static_cast<std::int32_t>(left) : kRows;
  return mine && block->count > 0 && block->part < block->parts;
}

// Where a chunk's result of a packed row goes in the workspace.
__device__ inline float* partial_of(const AttentionParams& p, const DecodeBlock& block,
                                    std::int32_t row, std::int32_t chunk) {
  const PackedRow at = unpack(p, block.kv_head, block.first + row);
  const std::int64_t line =
      (block.request.index() * p.request_rows + at.row) * p.a.q_heads + at.head;
  return p.partials + (line * p.max_chunks + chunk) * plan::cuda_partial_floats(p.a);
}

// What the rows of a block see together.
struct SeenKeys {
  KeySpan any;     // keys that some row may see
  KeySpan common;  // keys that every row sees but for masks and holes
};

// Describes the block's rows in memory.rows; sum_up() after a barrier.
template <std::int32_t kRows>
__device__ inline void open_rows(const AttentionParams& p, const DecodeBlock& block,
                                 const DecodeMemory& memory) {
  static_assert(kRows <= 32);
  if (threadIdx.x < kRows) {
    memory.rows[threadIdx.x] = row_info(p, block.request, block.first + threadIdx.x, block.kv_head);
  }
}

// Row i of the block by lane i of each warp.
template <std::int32_t kRows>
__device__ inline SeenKeys sum_up(const DecodeBlock& block, const DecodeMemory& memory) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  SeenKeys seen{{INT32_MAX, 0}, {0, INT32_MAX}};
  if (lane < block.count) {
    seen.common = {memory.rows[lane].begin, memory.rows[lane].end};
    if (seen.common.begin < seen.common.end) seen.any = seen.common;
  }
#pragma unroll
  for (std::int32_t lanes = 1; lanes < kRows; lanes *= 2) {
    seen.any.begin = min(seen.any.begin, __shfl_xor_sync(~0u, seen.any.begin, lanes));
    seen.any.end = max(seen.any.end, __shfl_xor_sync(~0u, seen.any.end, lanes));
    seen.common.begin = max(seen.common.begin, __shfl_xor_sync(~0u, seen.common.begin, lanes));
    seen.common.end = min(seen.common.end, __shfl_xor_sync(~0u, seen.common.end, lanes));
  }
  // Lanes past the rows of a block have summed up nothing.
  const SeenKeys all{
      {__shfl_sync(~0u, seen.any.begin, 0), __shfl_sync(~0u, seen.any.end, 0)},
      {__shfl_sync(~0u, seen.common.begin, 0), __shfl_sync(~0u, seen.common.end, 0)}};
  return all.any.begin < all.any.end ? all : SeenKeys{{0, 0}, all.common};
}

// The keys of a chunk that some row may see, from the start of a tile on; empty if begin >= end.
__device__ inline KeySpan tiles_of(const ChunkSpans& chunks, std::int32_t chunk,
                                   const KeySpan& seen) {
  const KeySpan span = chunks.span(chunk);
  return {max(span.begin, seen.begin & -static_cast<std::int32_t>(core::kKeyTile)),
          min(span.end, seen.end)};
}

// The tiles of a block, chunk after chunk, in order; tiles that no row sees are left out.
class TileWalk {
 public:
  __device__ TileWalk(const DecodeBlock& block, const KeySpan& seen)
      : block_(block), seen_(seen), chunk_(block.part) {
    open();
  }

  __device__ bool done() const { return chunk_ >= block_.chunks.count; }
  __device__ std::int32_t key() const { return key_; }

  // Whether the next tile does not follow the last one.
  __device__ bool advance() {
    key_ += static_cast<std::int32_t>(core::kKeyTile);
    if (key_ < end_) return false;
    chunk_ += block_.parts;
    open();
    return true;
  }

 private:
  __device__ void open() {
    for (; chunk_ < block_.chunks.count; chunk_ += block_.parts) {
      const KeySpan tiles = tiles_of(block_.chunks, chunk_, seen_);
      key_ = tiles.begin;
      end_ = tiles.end;
      if (key_ < end_) return;
    }
  }

  const DecodeBlock& block_;
  const KeySpan seen_;
  std::int32_t chunk_, key_ = 0, end_ = 0;
};

}  // namespace tilewise::cuda::tile
