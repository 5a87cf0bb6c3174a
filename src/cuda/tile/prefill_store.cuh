// The end of a prefill block: rows are ended, their outputs leave through the shared memory that
// held q, in pieces of 16 bytes where o is aligned to them.
#pragma once

#include <cstdint>

#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/prefill_query.cuh"
#include "cuda/tile/prefill_warp.cuh"

namespace tilewise::cuda::tile {

// A lane's row of those of its warp, ended.
struct EndedRow {
  std::int64_t offset;  // of o, in elements
  float factor;
};

// Lane i ends row i of the warp's rows; `empty`: bit i: it saw nothing. Uses the place of the
// warp's rows in memory.rows, which nobody reads any more.
template <class V, class Shape>
__device__ inline EndedRow end_rows(const AttentionParams& p, const PrefillBlock& block,
                                    const PrefillMemory& memory, PrefillWarp<V, Shape>& warp,
                                    std::uint32_t* empty) {
  constexpr std::int32_t kTiles = PrefillWarp<V, Shape>::kTiles;
  warp.gather_sums();
  const std::int32_t first = warp.row(0, 0) - warp.lane() / 4;
#pragma unroll
  for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
    for (std::int32_t j = 0; j < 2; ++j) {
      PrefillRow& row = memory.rows[warp.row(t, j)];
      if (warp.lane() % 4 == 0) {
        row.seen.begin = static_cast<std::int32_t>(core::bits_of(warp.base(t, j)));
        row.seen.end = static_cast<std::int32_t>(core::bits_of(warp.sum(t, j)));
      }
    }
  }
  __syncwarp();
  const std::int32_t own = first + warp.lane();
  EndedRow ended{0, 0.0f};
  bool is_empty = true;
  if (warp.lane() < 16 * kTiles && own < block.count) {
    const KeySpan kept = memory.rows[own].seen;
    float base = core::float_of(static_cast<std::uint32_t>(kept.begin));
    const float sum = core::float_of(static_cast<std::uint32_t>(kept.end));
    if (base == -INFINITY && sum != 0.0f) base = sum;  // NaN: the row saw keys, and only NaN
    const PackedRow row = unpack(p, block.kv_head, block.first + own);
    const OutputRow out = end_row(p.a, block.request, row.row, row.head, base, sum, true);
    ended = {out.offset, out.factor};
    is_empty = out.empty;
  }
  *empty = __ballot_sync(~0u, is_empty);
  return ended;
}

// Outputs of 32 bits, or 16 at a time.
template <class V, class Shape>
__device__ inline void store_floats(const AttentionParams& p, const PrefillBlock& block,
                                    const PrefillWarp<V, Shape>& warp, const EndedRow& ended,
                                    std::uint32_t empty) {
#pragma unroll
  for (std::int32_t t = 0; t < PrefillWarp<V, Shape>::kTiles; ++t) {
#pragma unroll
    for (std::int32_t j = 0; j < 2; ++j) {
      const std::int32_t own = 16 * t + 8 * j + warp.lane() / 4;
      const std::int64_t offset = __shfl_sync(~0u, ended.offset, own);
      const float factor = __shfl_sync(~0u, ended.factor, own);
      const bool zero = (empty >> own & 1u) != 0;
      if (warp.row(t, j) >= block.count) continue;
      float* to = static_cast<float*>(p.a.o) + offset;
#pragma unroll
      for (std::int32_t n = 0; n < V::kDim / 8; ++n) {
        const std::int32_t column = 8 * n + warp.lane() % 4 * 2;
        if (8 * n >= p.a.v_head_dim) break;
        to[column] = zero ? 0.0f : warp.output(t, n)[2 * j] * factor + 0.0f;
        to[column + 1] = zero ? 0.0f : warp.output(t, n)[2 * j + 1] * factor + 0.0f;
      }
    }
  }
}

// Outputs of 16 bits to the warp's rows of `to`, as pieces of kDim elements.
template <class V, class Shape>
__device__ inline void pack_outputs(const PrefillWarp<V, Shape>& warp, const EndedRow& ended,
                                    std::uint32_t empty, char* to) {
#pragma unroll
  for (std::int32_t t = 0; t < PrefillWarp<V, Shape>::kTiles; ++t) {
#pragma unroll
    for (std::int32_t j = 0; j < 2; ++j) {
      const std::int32_t own = 16 * t + 8 * j + warp.lane() / 4;
      const float factor = __shfl_sync(~0u, ended.factor, own);
      const bool zero = (empty >> own & 1u) != 0;
#pragma unroll
      for (std::int32_t n = 0; n < V::kDim / 8; ++n) {
        const float low = warp.output(t, n)[2 * j] * factor + 0.0f;
        const float high = warp.output(t, n)[2 * j + 1] * factor + 0.0f;
        const std::uint32_t word = ptx::pack<typename V::Element>(low, high);
        *reinterpret_cast<std::uint32_t*>(to + piece_offset<V::kDim / 8>(warp.row(t, j), n) +
                                          warp.lane() % 4 * 4) = zero ? 0 : word;
      }
    }
  }
}

// Stores the warp's rows. The q rows of the warp are overwritten.
template <class V, class Shape>
__device__ inline void store_rows(const AttentionParams& p, const PrefillBlock& block,
                                  const PrefillMemory& memory, PrefillWarp<V, Shape>& warp) {
  constexpr std::int32_t kPieces = V::kDim / 8;
  constexpr std::int32_t kRows = 16 * PrefillWarp<V, Shape>::kTiles;
  std::uint32_t empty;
  const EndedRow ended = end_rows(p, block, memory, warp, &empty);
  if (p.a.o_dtype == core::DType::kFp32) {
    store_floats(p, block, warp, ended, empty);
    return;
  }
  pack_outputs(warp, ended, empty, memory.q_bytes);
  __syncwarp();
  const std::int32_t first = warp.row(0, 0) - warp.lane() / 4;
  const bool aligned = aligned_to_16(p.a.o, p.a.o_stride, 2);
#pragma unroll 4
  for (std::int32_t i = 0; i < kRows * kPieces / 32; ++i) {
    const std::int32_t r = (warp.lane() + 32 * i) / kPieces, c = (warp.lane() + 32 * i) % kPieces;
    const std::int64_t offset = __shfl_sync(~0u, ended.offset, r);
    if (first + r >= block.count || c * 8 >= p.a.v_head_dim) continue;
    const uint4 piece =
        *reinterpret_cast<const uint4*>(memory.q_bytes + piece_offset<kPieces>(first + r, c));
    std::uint16_t* to = static_cast<std::uint16_t*>(p.a.o) + offset + c * 8;
    if (aligned) {
      *reinterpret_cast<uint4*>(to) = piece;
    } else {
      auto* words = reinterpret_cast<std::uint32_t*>(to);
      words[0] = piece.x, words[1] = piece.y, words[2] = piece.z, words[3] = piece.w;
    }
  }
}

}  // namespace tilewise::cuda::tile
