// The keys of a tile on their way to shared memory: where their rows lie, and slices of their
// columns as floats, whatever the element type.
#pragma once

#include <cstdint>

#include "cuda/kernel/simt/block.cuh"
#include "cuda/ptx/convert.cuh"

namespace tilewise::cuda::simt {

// core::locate with the page size's fast division.
__device__ inline core::KvLocation locate(const tile::AttentionParams& p,
                                          const core::RequestKv& request, std::int32_t key) {
  const core::KvCache& kv = p.a.kv;
  if (kv.layout != core::KvLayout::kPaged) return core::locate(kv, request, key);
  const auto at = static_cast<std::uint32_t>(key);
  const std::uint32_t page = p.page_size.quotient(at);
  const std::int64_t slot = page - request.first_page;
  if (slot < 0 || slot >= request.table_len) return core::missing_key();
  const std::int64_t id = request.table[slot];
  if (id < 0 || id >= kv.num_pages) return core::missing_key();
  return {id, p.page_size.remainder(at, page)};
}

// A bad page id counts only where some row may see the key.
__device__ inline void report_missing(const tile::AttentionParams& p, const Rows& rows,
                                      const Memory& memory, std::int32_t key) {
  for (std::int32_t row = 0; row < rows.count; ++row) {
    const tile::RowInfo& info = memory.rows[row].info;
    if (key < info.begin || key >= info.end) continue;
    tile::report_page(p.a.kv, rows.request.cache, key, tile::Report{p.faults});
    return;
  }
}

// Address of the row of `key` in K or V; null if it is missing. New keys come from the caller's
// rows.
template <bool kV>
__device__ inline const char* find_row(const tile::AttentionParams& p, const Rows& rows,
                                       const Memory& memory, std::int32_t key) {
  const core::Attention& a = p.a;
  const tile::Request& request = rows.request;
  if (key >= request.first_new) {
    const std::int64_t at =
        core::row_offset(kV ? a.append.v_stride : a.append.k_stride, a.q_indptr != nullptr,
                         request.index(), request.rows, key - request.first_new, rows.kv_head);
    return tile::element<const char>(kV ? a.append.v : a.append.k, a.kv_dtype, at);
  }
  const core::KvLocation at = locate(p, request.cache, key);
  if (at.block < 0) {
    if (!kV && p.faults != nullptr) report_missing(p, rows, memory, key);
    return nullptr;
  }
  return tile::element<const char>(
      kV ? a.kv.v : a.kv.k, a.kv_dtype,
      kV ? core::v_offset(a.kv, at, rows.kv_head) : core::k_offset(a.kv, at, rows.kv_head));
}

// Finds the rows of the tile at `first`, half of the block those of V. A barrier must follow.
__device__ inline void find_tile(const tile::AttentionParams& p, const Rows& rows,
                                 const Memory& memory, const tile::KeySpan& seen,
                                 std::int32_t first) {
  static_assert(core::kSimtThreads == 2 * kKeys);
  const auto i = static_cast<std::int32_t>(threadIdx.x) % kKeys;
  const std::int32_t key = first + i;
  const bool wanted = key >= seen.begin && key < seen.end;
  if (threadIdx.x < kKeys) {
    memory.k_rows[i] = wanted ? find_row<false>(p, rows, memory, key) : nullptr;
  } else {
    memory.v_rows[i] = wanted ? find_row<true>(p, rows, memory, key) : nullptr;
  }
}

// 8 elements as they lie in memory; 16-bit ones fill `low` alone.
struct Piece {
  uint4 low, high;
};

__device__ inline float2 unpack_pair(core::DType type, std::uint32_t pair) {
  if (type == core::DType::kBf16)
    return {core::float_of(pair << 16), core::float_of(pair & 0xFFFF0000u)};
  return {ptx::half_to_float(static_cast<std::uint16_t>(pair)),
          ptx::half_to_float(static_cast<std::uint16_t>(pair >> 16))};
}

__device__ inline void store_piece(core::DType type, const Piece& piece, float* to) {
  auto* out = reinterpret_cast<float4*>(to);
  if (type == core::DType::kFp32) {
    out[0] = {core::float_of(piece.low.x), core::float_of(piece.low.y), core::float_of(piece.low.z),
              core::float_of(piece.low.w)};
    out[1] = {core::float_of(piece.high.x), core::float_of(piece.high.y),
              core::float_of(piece.high.z), core::float_of(piece.high.w)};
    return;
  }
  const float2 a = unpack_pair(type, piece.low.x), b = unpack_pair(type, piece.low.y);
  const float2 c = unpack_pair(type, piece.low.z), d = unpack_pair(type, piece.low.w);
  out[0] = {a.x, a.y, b.x, b.y};
  out[1] = {c.x, c.y, d.x, d.y};
}

// Brings columns [first, first + kSimtSlice), of `dim` that there are, of a tile's rows to
// memory.tile, between barriers; zeros for keys whose row is null.
__device__ inline void load_slice(const Memory& memory, const char* const* rows, core::DType type,
                                  std::int32_t first, std::int32_t dim) {
  constexpr std::int32_t kPieces = core::kSimtSlice / 8;
  constexpr std::int32_t kStep = core::kSimtThreads / kPieces;
  constexpr std::int32_t kEach = kKeys / kStep;
  const auto at = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t column = at % kPieces * 8;
  const std::int32_t from = (first + column) * core::size_of(type);
  __syncthreads();
  if (first + column < dim) {
    Piece pieces[kEach];
#pragma unroll
    for (std::int32_t i = 0; i < kEach; ++i) {
      const char* row = rows[at / kPieces + i * kStep];
      pieces[i] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
      if (row == nullptr) continue;
      pieces[i].low = *reinterpret_cast<const uint4*>(row + from);
      if (type == core::DType::kFp32)
        pieces[i].high = *reinterpret_cast<const uint4*>(row + from + 16);
    }
#pragma unroll
    for (std::int32_t i = 0; i < kEach; ++i)
      store_piece(type, pieces[i], memory.tile + (at / kPieces + i * kStep) * kStride + column);
  }
  __syncthreads();
}

}  // namespace tilewise::cuda::simt
