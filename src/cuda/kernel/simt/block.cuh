// What a SIMT block works on, in either class: its packed rows, what they see, and its shared
// memory. Warp w has rows w, w + 4, ...
#pragma once

#include <cstdint>

#include "core/tile_shapes.h"
#include "cuda/tile/fold.cuh"
#include "cuda/tile/request.cuh"

namespace tilewise::cuda::simt {

constexpr std::int32_t kKeys = static_cast<std::int32_t>(core::kKeyTile);
constexpr std::int32_t kStride = core::kSimtSlice + core::kSimtPad;
constexpr std::int32_t kWarpRows = core::kSimtRows / core::kSimtWarps;

__device__ inline std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }
__device__ inline std::int32_t warp() { return static_cast<std::int32_t>(threadIdx.x / 32); }

// A row of the block and what its warp has summed up of it.
struct Row {
  tile::RowInfo info;
  tile::RowStats pass, run;  // since the pass began; class D: of the chunks folded so far
  float decay;               // what the last tile multiplies the row's output with
  std::uint32_t seen[2];     // the keys of the last tile that the row sees
};
static_assert(sizeof(Row) <= core::kSimtRowBytes);

// Arrays in the dynamic shared memory of a block (core::simt_shared).
struct Memory {
  float* tile;          // [key][kStride]: a slice of columns of K or V
  float* weights;       // [row][key]
  const char** k_rows;  // [key]; null: no row of the block sees the key, or it is missing
  const char** v_rows;
  Row* rows;
  float* q;    // [row][head_dim]
  float* run;  // class D: [row][v_head_dim]: the chunks folded so far
};

__device__ inline Memory memory_at(char* base, const core::SimtShared& at) {
  return {reinterpret_cast<float*>(base + at.tile),
          reinterpret_cast<float*>(base + at.weights),
          reinterpret_cast<const char**>(base + at.k_rows),
          reinterpret_cast<const char**>(base + at.v_rows),
          reinterpret_cast<Row*>(base + at.rows),
          reinterpret_cast<float*>(base + at.q),
          reinterpret_cast<float*>(base + at.run)};
}

// The same in all threads.
struct Rows {
  const tile::Request& request;
  std::int32_t kv_head;
  std::int64_t first;  // packed row of row 0
  std::int32_t count;
};

// Describes the block's rows in memory.rows and brings their q to memory.q; a barrier must follow.
__device__ inline void open_rows(const tile::AttentionParams& p, const Rows& rows,
                                 const Memory& memory) {
  const core::Attention& a = p.a;
  if (threadIdx.x < static_cast<std::uint32_t>(rows.count)) {
    memory.rows[threadIdx.x].info =
        tile::row_info(p, rows.request, rows.first + threadIdx.x, rows.kv_head);
  }
  for (std::int32_t row = warp(); row < rows.count; row += core::kSimtWarps) {
    const tile::PackedRow at = tile::unpack(p, rows.kv_head, rows.first + row);
    const std::int64_t from =
        core::row_offset(a.q_stride, a.q_indptr != nullptr, rows.request.index(), rows.request.rows,
                         at.row, at.head);
    for (std::int32_t c = lane(); c < a.head_dim; c += 32)
      memory.q[row * a.head_dim + c] = core::load_element(a.q, a.q_dtype, from + c);
  }
}

// The keys that some row may see.
__device__ inline tile::KeySpan seen_keys(const Rows& rows, const Memory& memory) {
  tile::KeySpan seen{INT32_MAX, 0};
  for (std::int32_t row = 0; row < rows.count; ++row) {
    const tile::RowInfo& info = memory.rows[row].info;
    if (info.begin >= info.end) continue;
    seen = {min(seen.begin, info.begin), max(seen.end, info.end)};
  }
  return seen.begin < seen.end ? seen : tile::KeySpan{0, 0};
}

}  // namespace tilewise::cuda::simt
