// The packed rows of q of a prefill block on their way to shared memory: pieces of 16 bytes, zeros
// past head_dim and past the last row.
#pragma once

#include <cstdint>

#include "cuda/tile/kv_rows.cuh"
#include "cuda/tile/prefill_block.cuh"

namespace tilewise::cuda::tile {

// Raw products of q and k are compared before they are scaled, so a negative scale is moved into q.
__device__ inline bool flips_sign(const AttentionParams& p) {
  return p.scale_log2 < 0.0f && p.a.softcap == 0.0f && p.a.alibi == nullptr;
}

// q may be aligned to 4 bytes only.
__device__ inline bool aligned_to_16(const void* base, const core::RowStrides& s,
                                     std::int32_t element_bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(base);
  const auto strides = static_cast<std::uint64_t>(s.batch | s.token | s.head);
  return ((address | strides * static_cast<std::uint64_t>(element_bytes)) & 15u) == 0;
}

// Each warp brings its share of the rows; asynchronous where q is aligned. Ends without a barrier.
template <std::int32_t kDim, class Shape>
__device__ inline void load_queries(const AttentionParams& p, const PrefillBlock& block,
                                    const PrefillMemory& memory) {
  constexpr std::int32_t kRows = Shape::kShape.rows / (Shape::kShape.threads() / 32);
  constexpr std::int32_t kPieces = kDim / 8;
  static_assert(kRows <= 32 && kRows * kPieces % 32 == 0);
  const core::Attention& a = p.a;
  const auto lane = static_cast<std::int32_t>(threadIdx.x % 32);
  const auto first = static_cast<std::int32_t>(threadIdx.x / 32) * kRows;
  // A lane's row, for whoever copies pieces of it.
  const bool has_row = lane < kRows && first + lane < block.count;
  const PackedRow own = unpack(p, block.kv_head, block.first + (has_row ? first + lane : 0));
  const std::int64_t offset =
      core::row_offset(a.q_stride, a.q_indptr != nullptr, block.request.index(), block.request.rows,
                       own.row, own.head);
  const auto address =
      reinterpret_cast<std::uint64_t>(static_cast<const std::uint16_t*>(a.q) + offset);
  const bool flips = flips_sign(p);
  const bool direct = !flips && aligned_to_16(a.q, a.q_stride, 2);
#pragma unroll 4
  for (std::int32_t i = 0; i < kRows * kPieces / 32; ++i) {
    const std::int32_t r = (lane + 32 * i) / kPieces, c = (lane + 32 * i) % kPieces;
    const auto from = reinterpret_cast<const char*>(__shfl_sync(~0u, address, r)) +
                      (c * 8 < a.head_dim ? c * kPieceBytes : 0);
    const bool there = first + r < block.count && c * 8 < a.head_dim;
    const std::uint32_t to = piece_offset<kPieces>(first + r, c);
    if (direct) {
      ptx::copy_async_16(memory.q + to, from, there ? kPieceBytes : 0);
      continue;
    }
    std::uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (std::int32_t w = 0; w < 4; ++w) {
      if (there) words[w] = reinterpret_cast<const std::uint32_t*>(from)[w];
      if (flips) words[w] ^= 0x80008000u;
    }
    ptx::store_shared_16(memory.q + to, words[0], words[1], words[2], words[3]);
  }
}

// Opens the block and starts its copies of q; false if it has nothing to do.
template <std::int32_t kDim, class Shape>
__device__ inline bool start_block(const AttentionParams& p, const PrefillMemory& memory,
                                   PrefillBlock* shared) {
  constexpr std::int32_t kRows = Shape::kShape.rows;
  PrefillBlock block;
  if (!open_prefill<kRows>(p, &block)) return false;
  load_queries<kDim, Shape>(p, block, memory);
  describe_rows<Shape>(p, block, memory);
  if (threadIdx.x == 0) *shared = block;
  if (p.a.append.k != nullptr) {
    append_prefill<kRows>(p, block.request.index(), block.kv_head, block.first);
  }
  __syncthreads();
  const SeenTogether all = see_together(memory, 0, shared->count);
  if (threadIdx.x == 0) {
    find_keys(p, all, Shape::kShape.keys / (Shape::kShape.threads() / 32), shared);
  }
  __syncthreads();
  return true;
}

}  // namespace tilewise::cuda::tile
