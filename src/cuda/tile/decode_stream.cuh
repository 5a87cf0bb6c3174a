// One warp's stream of class D: 16 keys of every tile of 64, through a ring of its own, against the
// packed rows of the block. Operands are swapped, S^T = K Q^T and O^T = V^T P^T, so that 8 rows
// cost one m16n8k16 a step: keys (and output columns) lie in the 16 rows of a product, packed rows
// in its 8 columns. Register i of a product belongs to row lane / 4 + 8 * (i / 2) and column lane %
// 4 * 2 + i % 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/tile_shapes.h"
#include "cuda/ptx/math.cuh"
#include "cuda/tile/decode_block.cuh"
#include "cuda/tile/kv_rows.cuh"

namespace tilewise::cuda::tile {

// The block's rows of q on their way to shared memory, where they lie as 16-byte pieces of kDim
// elements, zeros past head_dim and past the last row. q is aligned to 4 bytes only. Loaded first
// and stored when lengths and tables have been read.
template <std::int32_t kDim, std::int32_t kRows>
class StagedQueries {
 public:
  __device__ StagedQueries(const AttentionParams& p, const DecodeBlock& block) {
    const core::Attention& a = p.a;
#pragma unroll
    for (std::int32_t i = 0; i < kPieces; ++i) {
      const std::int32_t at = static_cast<std::int32_t>(threadIdx.x) + i * core::kDecodeThreads;
      const std::int32_t r = at / kRowPieces, c = at % kRowPieces;
      words_[i] = {0, 0, 0, 0};
      if (r >= block.count || c * 8 >= a.head_dim) continue;
      const PackedRow from = unpack(p, block.kv_head, block.first + r);
      const std::int64_t offset =
          core::row_offset(a.q_stride, a.q_indptr != nullptr, block.request.index(),
                           block.request.rows, from.row, from.head);
      const auto* words = reinterpret_cast<const std::uint32_t*>(
          static_cast<const std::uint16_t*>(a.q) + offset + c * 8);
      words_[i] = {words[0], words[1], words[2], words[3]};
    }
  }

  __device__ void store(const DecodeMemory& memory) const {
#pragma unroll
    for (std::int32_t i = 0; i < kPieces; ++i) {
      const std::int32_t at = static_cast<std::int32_t>(threadIdx.x) + i * core::kDecodeThreads;
      if (at >= kRows * kRowPieces) continue;
      *reinterpret_cast<uint4*>(
          memory.q_bytes + piece_offset<kRowPieces>(at / kRowPieces, at % kRowPieces)) = words_[i];
    }
  }

 private:
  static constexpr std::int32_t kRowPieces = kDim / 8;
  static constexpr std::int32_t kPieces =
      (kRows * kRowPieces + core::kDecodeThreads - 1) / core::kDecodeThreads;

  uint4 words_[kPieces];
};

template <class V, std::int32_t kTiles>
class DecodeStream {
  using Element = typename V::Element;

 public:
  static constexpr std::int32_t kDim = V::kDim;
  static constexpr std::int32_t kRows = 8 * kTiles;
  static constexpr std::int32_t kPieces = kDim / 8;
  static constexpr std::int32_t kSteps = kDim / 16;
  // Fragments of q stay in registers where they are few.
  static constexpr bool kKeepsQ = kSteps * kTiles <= 16;
  static constexpr float kSlack = 8.0f;  // log2 units; part of the bits
  static constexpr std::uint32_t kRowsBytes = core::kStreamKeys * kDim * 2;

  __device__ DecodeStream(const AttentionParams& p, const DecodeMemory& memory,
                          const SeenKeys& seen, std::int32_t rows)
      : p_(p),
        memory_(memory),
        count_(rows),
        plain_(p.a.softcap == 0.0f && p.a.alibi == nullptr && p.a.mask.data == nullptr ? 1 : 0),
        common_(seen.common),
        k_pieces_(lane() % 16, lane() / 16),
        v_pieces_(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2) {
    ptx::keep(plain_);
    if (kKeepsQ) {
#pragma unroll
      for (std::int32_t step = 0; step < kSteps; step += 2) {
#pragma unroll
        for (std::int32_t t = 0; t < kTiles; ++t) load_q(step, t, q_[kKeepsQ ? step / 2 : 0][t]);
      }
    }
  }

  // Starts a chunk from scratch.
  __device__ void clear() {
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) maximum[t][j] = -INFINITY, sum[t][j] = 0.0f;
#pragma unroll
      for (std::int32_t d = 0; d < kSteps; ++d) {
#pragma unroll
        for (std::int32_t i = 0; i < 4; ++i) output[d][t][i] = 0.0f;
      }
    }
  }

  // Attends the 16 keys from `key` on, a tile of the ring, and starts another one on the way.
  template <class Ring>
  __device__ void attend(std::int32_t key, Ring& ring) {
    const auto rows = ring.wait();
    float s[kTiles][4];
    multiply_qk(rows.k, s);
    ring.refill(false);
    if (plain_ != 0 && rows.full && key >= common_.begin &&
        key + core::kStreamKeys <= common_.end) {
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
        for (std::int32_t i = 0; i < 4; ++i) s[t][i] *= p_.scale_log2;
      }
    } else {
      hide(key, rows.full ? 0xFFFFu : *rows.present, rows.k + kRowsBytes, s);
    }
    std::uint32_t weights[kTiles][2];
    soften(s, weights);
    multiply_pv(rows.k + kRowsBytes, weights);
    __syncwarp();
    ring.refill(true);
  }

  // Sums over the lanes that share a row; call once at a chunk's end.
  __device__ void gather_sums() {
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) {
#pragma unroll
        for (std::int32_t lanes = 4; lanes < 32; lanes *= 2)
          sum[t][j] += __shfl_xor_sync(~0u, sum[t][j], lanes);
      }
    }
  }

  // State of the stream over the chunk so far: rows 8 t + lane % 4 * 2 + j. Maxima, up to kSlack
  // behind, are in log2 units; sums are this lane's share until gather_sums().
  float maximum[kTiles][2], sum[kTiles][2];
  float output[kSteps][kTiles][4];

 private:
  __device__ static std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }

  // Fragments of q for two steps.
  __device__ void load_q(std::int32_t step, std::int32_t t, std::uint32_t (&q)[4]) const {
    const std::int32_t row = 8 * t + lane() % 8, piece = 2 * step + lane() / 8;
    ptx::load_matrix_x4(q, memory_.q + piece_offset<kPieces>(row, piece));
  }

  __device__ void multiply_qk(std::uint32_t k, float (&s)[kTiles][4]) const {
    float odd[kTiles][4];  // two sums, so that a product need not wait for the one before it
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) s[t][i] = odd[t][i] = 0.0f;
    }
#pragma unroll
    for (std::int32_t step = 0; step < kSteps; step += 2) {
      std::uint32_t a[2][4];
      ptx::load_matrix_x4(a[0], k_pieces_.at(k, step));
      ptx::load_matrix_x4(a[1], k_pieces_.at(k, step + 1));
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t) {
        std::uint32_t b[4];
        if (kKeepsQ) {
#pragma unroll
          for (std::int32_t i = 0; i < 4; ++i) b[i] = q_[kKeepsQ ? step / 2 : 0][t][i];
        } else {
          load_q(step, t, b);
        }
        ptx::multiply_add<Element>(s[t], a[0], b[0], b[1]);
        ptx::multiply_add<Element>(odd[t], a[1], b[2], b[3]);
      }
    }
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) s[t][i] += odd[t][i];
    }
  }

  // Logits of edge keys and of rows with options: -inf where a row does not see a key. Rows of V
  // that no row of the block sees are zeroed: their slots may hold NaN.
  __device__ void hide(std::int32_t key, std::uint32_t present, std::uint32_t v,
                       float (&s)[kTiles][4]) const {
    bool used[2] = {false, false};
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) {
        const std::int32_t at = lane() / 4 + 8 * (i / 2);
        const std::int32_t r = 8 * t + lane() % 4 * 2 + i % 2;
        const bool seen =
            r < count_ && (present >> at & 1u) != 0 && sees(p_.a, memory_.rows[r], key + at);
        used[i / 2] = used[i / 2] || seen;
        s[t][i] = seen ? transform(p_, memory_.rows[r], key + at, s[t][i]) : -INFINITY;
      }
    }
    if (p_.a.mask.data == nullptr && p_.a.q_positions == nullptr) return;
    std::uint32_t live = 0;
#pragma unroll
    for (std::int32_t half = 0; half < 2; ++half) {
      const std::uint32_t lanes = __ballot_sync(~0u, used[half]);
#pragma unroll
      for (std::int32_t r = 0; r < 8; ++r)
        live |= (lanes >> (4 * r) & 0xFu) != 0 ? 1u << (8 * half + r) : 0u;
    }
    zero_rows(v, ~live & present);
  }

  __device__ void zero_rows(std::uint32_t v, std::uint32_t dead) const {
    for (; dead != 0; dead &= dead - 1) {
      const std::int32_t r = __ffs(static_cast<int>(dead)) - 1;
      for (std::int32_t c = lane(); c < kPieces; c += 32)
        ptx::store_shared_16(v + piece_offset<kPieces>(r, c), 0, 0, 0, 0);
    }
    __syncwarp();
  }

  // Logits to weights, packed as the second operand of the product with V. A row's reference
  // follows its maximum only when that has grown by more than kSlack: weights stay below 2^kSlack,
  // and most tiles need no maximum across lanes. Whether a row's reference moves is that row's
  // affair alone.
  __device__ void soften(float (&s)[kTiles][4], std::uint32_t (&weights)[kTiles][2]) {
    bool grown = false;
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t i = 0; i < 4; ++i) grown = grown || s[t][i] > maximum[t][i % 2] + kSlack;
    }
    if (__any_sync(~0u, grown)) follow_maxima(s);
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) {
        const float base = maximum[t][j] == -INFINITY ? 0.0f : maximum[t][j];
        s[t][j] = ptx::exp2(s[t][j] - base);
        s[t][j + 2] = ptx::exp2(s[t][j + 2] - base);
        sum[t][j] += s[t][j] + s[t][j + 2];
      }
      weights[t][0] = ptx::transpose_matrix(ptx::pack<Element>(s[t][0], s[t][1]));
      weights[t][1] = ptx::transpose_matrix(ptx::pack<Element>(s[t][2], s[t][3]));
    }
  }

  __device__ void follow_maxima(const float (&s)[kTiles][4]) {
    bool holds = false;  // some row that moves has summed something up
    float decay[kTiles][2];
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) {
        float top = fmaxf(s[t][j], s[t][j + 2]);
#pragma unroll
        for (std::int32_t lanes = 4; lanes < 32; lanes *= 2)
          top = fmaxf(top, __shfl_xor_sync(~0u, top, lanes));
        const float before = maximum[t][j];
        const bool moves = top > before + kSlack;
        decay[t][j] = moves ? ptx::exp2(before - top) : 1.0f;
        holds = holds || (moves && before != -INFINITY);
        maximum[t][j] = moves ? top : before;
        sum[t][j] *= decay[t][j];
      }
    }
    if (__any_sync(~0u, holds)) rescale(decay);
  }

  __device__ void rescale(const float (&decay)[kTiles][2]) {
#pragma unroll
    for (std::int32_t d = 0; d < kSteps; ++d) {
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
        for (std::int32_t i = 0; i < 4; ++i) output[d][t][i] *= decay[t][i % 2];
      }
    }
  }

  __device__ void multiply_pv(std::uint32_t v, const std::uint32_t (&weights)[kTiles][2]) {
#pragma unroll
    for (std::int32_t d = 0; d < kSteps; ++d) {
      std::uint32_t a[4];
      ptx::load_matrix_x4_transposed(a, v_pieces_.at(v, d));
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t)
        ptx::multiply_add<Element>(output[d][t], a, weights[t][0], weights[t][1]);
    }
  }

  const AttentionParams& p_;
  const DecodeMemory& memory_;
  std::int32_t count_;
  std::uint32_t plain_;  // logits are the scaled products
  KeySpan common_;
  LanePieces<kPieces> k_pieces_, v_pieces_;
  std::uint32_t q_[kKeepsQ ? kSteps / 2 : 1][kTiles][4];
};

}  // namespace tilewise::cuda::tile
