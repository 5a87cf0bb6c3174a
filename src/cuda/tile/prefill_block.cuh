// A block of class P: which packed rows it has, what they see, and its shared memory.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "core/tile_shapes.h"
#include "cuda/ptx/memory.cuh"
#include "cuda/tile/q_schedule.cuh"
#include "cuda/tile/request.cuh"

namespace tilewise::cuda::tile {

// What a block keeps of a row's visibility. `mask`: null if the row keeps nothing past the mask's
// first key.
struct PrefillRow {
  KeySpan seen;
  float slope_log2;
  std::int64_t position;
  const std::uint8_t* mask;
};
static_assert(sizeof(PrefillRow) == core::kPrefillRowBytes);

// Arrays in the dynamic shared memory of a prefill block (core::prefill_shared).
struct PrefillMemory {
  std::uint32_t q, ring;  // shared addresses, for asynchronous copies and matrix loads
  char* q_bytes;
  PrefillRow* rows;
};

template <std::int32_t kDim, class Shape>
__device__ inline PrefillMemory prefill_memory(char* base) {
  constexpr core::PrefillShared kAt = core::prefill_shared(kDim, Shape::kShape);
  return {ptx::shared_address(base + kAt.q), ptx::shared_address(base + kAt.ring), base + kAt.q,
          reinterpret_cast<PrefillRow*>(base + kAt.rows)};
}

// K or V as a block's copies see it.
struct PrefillSide {
  const char* first;            // row of key 0 of the KV head, paged: of page 0
  const char* appended;         // where key 0 would lie if all keys were appended rows
  std::int64_t appended_bytes;  // from one appended row to the next
  std::int32_t pieces;          // of 16 bytes of a row
};

// What a block works on. Kept in shared memory: the loop needs the registers.
struct PrefillBlock {
  Request request;
  std::int32_t kv_head;
  std::int32_t count;  // rows
  std::int64_t first;  // packed row of row 0
  KeySpan seen;        // keys that some row may see
  KeySpan common;      // keys that every row sees but for masks and holes
  // Keys whose rows follow each other in the cache, paged: if a share of a tile lies in one page.
  KeySpan straight;
  PrefillSide k, v;
};

// Rare work of one block of a request or tile, kept out of the way of all others: it opens the
// request anew.
__device__ __noinline__ inline void check_prefill(const AttentionParams& p, std::int32_t r) {
  check_request(p.a, open_request(p.a, r, Report{nullptr}), Report{p.faults});
}

// Appends the rows whose first packed row is one of [first, first + kRows).
template <std::int32_t kRows>
__device__ __noinline__ inline void append_prefill(const AttentionParams& p, std::int32_t r,
                                                   std::int32_t kv_head, std::int64_t first) {
  const Request request = open_request(p.a, r, Report{nullptr});
  const std::int64_t begin = core::divide_up(first, p.a.group());
  const std::int64_t end = core::divide_up(first + kRows, p.a.group());
  append_rows(p.a, request, kv_head, begin, end < request.rows.count ? end : request.rows.count,
              Report{p.faults});
}

// False if there is nothing to do here: another class, or no rows. Heads lie next to each other in
// the grid, so that blocks that read one K/V tile run together; tiles with the most keys come
// first.
template <std::int32_t kRows>
__device__ inline bool open_prefill(const AttentionParams& p, PrefillBlock* block) {
  const auto heads = static_cast<std::uint32_t>(p.a.kv_heads);
  const std::uint32_t rank = blockIdx.x / heads;
  block->kv_head = static_cast<std::int32_t>(blockIdx.x % heads);
  const QTile at = find_q_tile<kRows>(p.a, p.prefill_blocks, rank);
  if (at.request < 0) return false;
  const bool reports = at.tile == 0 && block->kv_head == 0;
  block->request =
      open_request(p.a, at.request, Report{reports && threadIdx.x == 0 ? p.faults : nullptr});
  const std::int64_t rows = block->request.rows.count;
  if (core::row_class(rows, p.a.forced_class) != core::RowClass::kPrefill) return false;
  if (reports && p.faults != nullptr) check_prefill(p, at.request);
  block->first = at.tile * kRows;
  const std::int64_t left = rows * p.group.divisor() - block->first;
  if (left <= 0) return false;  // a slot that no tile needs
  block->count = left < kRows ? static_cast<std::int32_t>(left) : kRows;
  return true;
}

// Describes the block's rows in memory.rows.
template <class Shape>
__device__ inline void describe_rows(const AttentionParams& p, const PrefillBlock& block,
                                     const PrefillMemory& memory) {
  for (std::int32_t i = threadIdx.x; i < Shape::kShape.rows; i += Shape::kShape.threads()) {
    const RowInfo row = row_info(p, block.request, block.first + i, block.kv_head);
    memory.rows[i] = {{row.begin, row.end},
                      row.slope_log2,
                      row.position,
                      row.mask.end > row.mask.first_key ? row.mask.data : nullptr};
  }
}

__device__ inline RowInfo info_of(const core::Attention& a, std::int32_t request,
                                  const PrefillRow& row) {
  RowInfo info{row.seen.begin, row.seen.end, row.position, {row.mask, 0, 0}, row.slope_log2};
  if (a.mask.data == nullptr) return info;
  info.mask.first_key = a.mask.first_key != nullptr ? a.mask.first_key[request] : 0;
  info.mask.end = info.mask.first_key + (row.mask != nullptr ? a.mask.width : 0);
  return info;
}

// What rows see together.
struct SeenTogether {
  KeySpan any;     // keys that some row may see
  KeySpan common;  // keys that every row sees but for masks and holes
};

__device__ inline bool meets(const KeySpan& span, std::int32_t key, std::int32_t keys) {
  return key < span.end && key + keys > span.begin;
}
__device__ inline bool contains(const KeySpan& span, std::int32_t key, std::int32_t keys) {
  return key >= span.begin && key + keys <= span.end;
}

__device__ inline void find_appended(const core::Attention& a, const PrefillBlock& block,
                                     const void* rows, const core::RowStrides& stride,
                                     PrefillSide* side) {
  const Request& request = block.request;
  const std::int64_t row_0 = core::row_offset(stride, a.q_indptr != nullptr, request.index(),
                                              request.rows, 0, block.kv_head);
  side->appended_bytes = stride.token * 2;
  side->appended =
      static_cast<const char*>(rows) + row_0 * 2 - request.first_new * side->appended_bytes;
}

// Completes the block once its rows are described; `share`: keys that a warp copies of a tile.
__device__ inline void find_keys(const AttentionParams& p, const SeenTogether& all,
                                 std::int32_t share, PrefillBlock* block) {
  const core::KvCache& kv = p.a.kv;
  const bool paged = kv.layout == core::KvLayout::kPaged;
  const core::KvLocation first =
      paged ? core::KvLocation{0, 0} : core::locate(kv, block->request.cache, 0);
  block->k = {static_cast<const char*>(kv.k) + core::k_offset(kv, first, block->kv_head) * 2,
              nullptr, 0, p.a.head_dim / 8};
  block->v = {static_cast<const char*>(kv.v) + core::v_offset(kv, first, block->kv_head) * 2,
              nullptr, 0, p.a.v_head_dim / 8};
  if (p.a.append.k != nullptr) {
    find_appended(p.a, *block, p.a.append.k, p.a.append.k_stride, &block->k);
    find_appended(p.a, *block, p.a.append.v, p.a.append.v_stride, &block->v);
  }
  block->seen = all.any;
  block->common = all.common;
  block->straight = all.any;
  if (p.a.append.k != nullptr && block->request.first_new < all.any.end) {
    block->straight.end = static_cast<std::int32_t>(block->request.first_new);
  }
  if (paged && kv.page_size % share != 0) block->straight.end = 0;
}

// Of rows [begin, end) of the block, asked by all lanes of a warp.
__device__ inline SeenTogether see_together(const PrefillMemory& memory, std::int32_t begin,
                                            std::int32_t end) {
  SeenTogether seen{{INT32_MAX, 0}, {0, INT32_MAX}};
  for (std::int32_t r = begin + static_cast<std::int32_t>(threadIdx.x % 32); r < end; r += 32) {
    const KeySpan row = memory.rows[r].seen;
    seen.common = {max(seen.common.begin, row.begin), min(seen.common.end, row.end)};
    if (row.begin >= row.end) continue;
    seen.any = {min(seen.any.begin, row.begin), max(seen.any.end, row.end)};
  }
  seen.any = {__reduce_min_sync(~0u, seen.any.begin), __reduce_max_sync(~0u, seen.any.end)};
  seen.common = {__reduce_max_sync(~0u, seen.common.begin),
                 __reduce_min_sync(~0u, seen.common.end)};
  if (seen.any.begin >= seen.any.end) seen.any = {0, 0};
  return seen;
}

}  // namespace tilewise::cuda::tile
