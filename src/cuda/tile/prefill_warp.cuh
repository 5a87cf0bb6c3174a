// One warp of a prefill block: its rows of q against a tile of keys, S = Q K^T and O += P V by
// m16n8k16, with S, P and O in registers. Register i of a product belongs to row lane / 4 + 8 *
// (i / 2) and column lane % 4 * 2 + i % 2 of its 16x8.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/tile_shapes.h"
#include "cuda/ptx/math.cuh"
#include "cuda/tile/kv_rows.cuh"
#include "cuda/tile/prefill_block.cuh"

namespace tilewise::cuda::tile {

// A row's base, what its exponents are counted from, moves only when the row's maximum has grown by
// more than this (log2 units): rows are rescaled a few times in all. Weights stay below 2^8, which
// fp16 holds too. Part of the bits.
constexpr float kBaseSlack = 8.0f;

template <class V, class Shape>
class PrefillWarp {
  using Element = typename V::Element;
  static constexpr core::PrefillShape kShape = Shape::kShape;
  static_assert(kShape.warps_d == 1);

 public:
  static constexpr std::int32_t kDim = V::kDim;
  static constexpr std::int32_t kPieces = kDim / 8;
  static constexpr std::int32_t kSteps = kDim / 16;
  static constexpr std::int32_t kKeySteps = kShape.keys / 16;
  static constexpr std::int32_t kTiles = kShape.rows / kShape.warps_m / 16;
  // Fragments of q stay in registers where they are few.
  static constexpr bool kKeepsQ = kSteps * kTiles <= 8;

  float scores[kTiles][2 * kKeySteps][4];

  __device__ explicit PrefillWarp(std::int32_t first) : first_(first) {
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) base_[t][j] = -INFINITY, sum_[t][j] = 0.0f;
#pragma unroll
      for (std::int32_t d = 0; d < 2 * kSteps; ++d) {
#pragma unroll
        for (std::int32_t i = 0; i < 4; ++i) output_[t][d][i] = 0.0f;
      }
    }
  }

  // Once, when q is in shared memory.
  __device__ void keep_queries(std::uint32_t q) {
    if (!kKeepsQ) return;
    const LanePieces<kPieces> pieces(first_ + lane() % 16, lane() / 16);
#pragma unroll
    for (std::int32_t step = 0; step < kSteps; ++step) {
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t)
        ptx::load_matrix_x4(q_[kKeepsQ ? step : 0][t], pieces.at(q + t * kTileBytes, step));
    }
  }

  __device__ void multiply_qk(std::uint32_t q, std::uint32_t k) {
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t n = 0; n < 2 * kKeySteps; ++n) {
#pragma unroll
        for (std::int32_t i = 0; i < 4; ++i) scores[t][n][i] = 0.0f;
      }
    }
    const LanePieces<kPieces> q_pieces(first_ + lane() % 16, lane() / 16);
    const LanePieces<kPieces> k_pieces(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
#pragma unroll
    for (std::int32_t step = 0; step < kSteps; ++step) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t) {
        if (kKeepsQ) {
#pragma unroll
          for (std::int32_t i = 0; i < 4; ++i) a[t][i] = q_[kKeepsQ ? step : 0][t][i];
        } else {
          ptx::load_matrix_x4(a[t], q_pieces.at(q + t * kTileBytes, step));
        }
      }
#pragma unroll
      for (std::int32_t n = 0; n < kKeySteps; ++n) {
        std::uint32_t b[4];
        ptx::load_matrix_x4(b, k_pieces.at(k + n * kTileBytes, step));
#pragma unroll
        for (std::int32_t t = 0; t < kTiles; ++t) {
          ptx::multiply_add<Element>(scores[t][2 * n], a[t], b[0], b[1]);
          ptx::multiply_add<Element>(scores[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

  // Scores to weights, times V. `unit`: log2 units of a score, above 0.
  __device__ void multiply_pv(std::uint32_t v, float unit) {
    move_bases(unit);
    float offset[kTiles][2];
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) offset[t][j] = -finite_base(base_[t][j]);
    }
    const LanePieces<kPieces> v_pieces(lane() % 16, lane() / 16);
#pragma unroll
    for (std::int32_t k = 0; k < kKeySteps; ++k) {
      std::uint32_t weights[kTiles][4];
#pragma unroll
      for (std::int32_t t = 0; t < kTiles; ++t) {
        if (far_) {
          soften<true>(t, k, unit, offset[t]);
        } else {
          soften<false>(t, k, unit, offset[t]);
        }
#pragma unroll
        for (std::int32_t i = 0; i < 4; ++i) {
          const float(&s)[4] = scores[t][2 * k + i / 2];
          weights[t][i] = ptx::pack<Element>(s[i % 2 * 2], s[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (std::int32_t d = 0; d < kSteps; ++d) {
        std::uint32_t b[4];
        ptx::load_matrix_x4_transposed(b, v_pieces.at(v + k * kTileBytes, d));
#pragma unroll
        for (std::int32_t t = 0; t < kTiles; ++t) {
          ptx::multiply_add<Element>(output_[t][2 * d], weights[t], b[0], b[1]);
          ptx::multiply_add<Element>(output_[t][2 * d + 1], weights[t], b[2], b[3]);
        }
      }
    }
  }

  // Sums over the lanes that share a row; once, at the end.
  __device__ void gather_sums() {
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) {
        sum_[t][j] += __shfl_xor_sync(~0u, sum_[t][j], 1);
        sum_[t][j] += __shfl_xor_sync(~0u, sum_[t][j], 2);
      }
    }
  }

  __device__ static std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }
  // Row of the block of registers 2 j and 2 j + 1 of tile t.
  __device__ std::int32_t row(std::int32_t t, std::int32_t j) const {
    return first_ + 16 * t + 8 * j + lane() / 4;
  }
  __device__ float base(std::int32_t t, std::int32_t j) const { return base_[t][j]; }
  __device__ float sum(std::int32_t t, std::int32_t j) const { return sum_[t][j]; }
  __device__ const float (&output(std::int32_t t, std::int32_t n) const)[4] {
    return output_[t][n];
  }

 private:
  static constexpr std::uint32_t kTileBytes = 16 * kDim * 2;  // of 16 rows of q, K or V

  // What exponents are counted from: a row that has seen nothing has none.
  __device__ static float finite_base(float base) { return base == -INFINITY ? 0.0f : base; }

  // Moves the bases of rows whose maximum has outgrown them and rescales what was summed; a factor
  // of other rows is exactly 1.
  __device__ void move_bases(float unit) {
    float top[kTiles][2];
    bool moves = false;
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) {
        float most = -INFINITY;
#pragma unroll
        for (std::int32_t n = 0; n < 2 * kKeySteps; ++n)
          most = fmaxf(most, fmaxf(scores[t][n][2 * j], scores[t][n][2 * j + 1]));
        top[t][j] = most * unit;
        moves = moves || top[t][j] > base_[t][j] + kBaseSlack;
      }
    }
    if (__any_sync(~0u, moves)) rescale(top);
  }

  __device__ void rescale(const float (&top)[kTiles][2]) {
    bool far = false;
#pragma unroll
    for (std::int32_t t = 0; t < kTiles; ++t) {
#pragma unroll
      for (std::int32_t j = 0; j < 2; ++j) {
        float most = fmaxf(top[t][j], __shfl_xor_sync(~0u, top[t][j], 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        if (!(most > base_[t][j] + kBaseSlack)) most = base_[t][j];
        const float factor = ptx::exp2(base_[t][j] - finite_base(most));
        base_[t][j] = most;
        far = far || is_far(most);
        sum_[t][j] *= factor;
#pragma unroll
        for (std::int32_t d = 0; d < 2 * kSteps; ++d) {
          output_[t][d][2 * j] *= factor;
          output_[t][d][2 * j + 1] *= factor;
        }
      }
    }
    far_ = __any_sync(~0u, far);
  }

  // Where a base is so large that rounding its product with `unit` would move the exponents,
  // products are rounded before they are subtracted: equal scores then differ by exactly 0.
  __device__ static bool is_far(float base) { return fabsf(base) > 1024.0f && base != -INFINITY; }
  template <bool kMayBeFar>
  __device__ static float exponent(float score, float unit, float offset) {
    if (kMayBeFar && is_far(offset)) return score * unit + offset;
    return fmaf(score, unit, offset);
  }

  // Weights of the 16 keys of step k.
  template <bool kMayBeFar>
  __device__ void soften(std::int32_t t, std::int32_t k, float unit, const float (&offset)[2]) {
#pragma unroll
    for (std::int32_t j = 0; j < 2; ++j) {
      float part[2];
#pragma unroll
      for (std::int32_t n = 0; n < 2; ++n) {
        float(&s)[4] = scores[t][2 * k + n];
        s[2 * j] = ptx::exp2(exponent<kMayBeFar>(s[2 * j], unit, offset[j]));
        s[2 * j + 1] = ptx::exp2(exponent<kMayBeFar>(s[2 * j + 1], unit, offset[j]));
        part[n] = s[2 * j] + s[2 * j + 1];
      }
      sum_[t][j] += part[0] + part[1];
    }
  }

  std::int32_t first_;  // row of the block
  bool far_ = false;    // some row of the warp has a far base
  float base_[kTiles][2], sum_[kTiles][2];
  float output_[kTiles][2 * kSteps][4];
  std::uint32_t q_[kKeepsQ ? kSteps : 1][kTiles][4];
};

}  // namespace tilewise::cuda::tile
