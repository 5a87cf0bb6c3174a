// The online pass of a warp's rows over tiles of keys, in float32 throughout. What a row sums, and
// in which order, depends on nothing but its own visible keys: a weight never meets a row of V that
// its row does not see, and a tile of which a row sees nothing leaves its state alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/kernel/simt/keys.cuh"
#include "cuda/ptx/math.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/fold.cuh"

namespace tilewise::cuda::simt {

constexpr std::int32_t kSlices = 512 / core::kSimtSlice;

class Pass {
 public:
  __device__ Pass(const tile::AttentionParams& p, const Memory& memory, std::int32_t rows)
      : p_(p), memory_(memory), rows_((rows - warp() + core::kSimtWarps - 1) / core::kSimtWarps) {
    clear();
  }

  // Rows of this warp; row i of them is row row(i) of the block.
  __device__ std::int32_t rows() const { return rows_; }
  __device__ static std::int32_t row(std::int32_t i) { return warp() + i * core::kSimtWarps; }

  __device__ void clear() {
    __syncwarp();
    if (lane() < rows_) memory_.rows[row(lane())].pass = {-INFINITY, 0.0f};
    __syncwarp();
#pragma unroll
    for (std::int32_t s = 0; s < kSlices; ++s) {
#pragma unroll
      for (std::int32_t i = 0; i < kWarpRows; ++i) output_[s][i] = {0.0f, 0.0f};
    }
  }

  // Attends the tile of keys at `first`, whose rows find_tile() has found.
  __device__ void attend(std::int32_t first) {
    const core::Attention& a = p_.a;
    float scores[kWarpRows][2] = {};
    for (std::int32_t column = 0; column < a.head_dim; column += core::kSimtSlice) {
      load_slice(memory_, memory_.k_rows, a.kv_dtype, column, a.head_dim);
      multiply_qk(column, scores);
    }
#pragma unroll
    for (std::int32_t i = 0; i < kWarpRows; ++i) {
      if (i >= rows_) break;
      float* to = memory_.weights + row(i) * kKeys + lane();
      to[0] = scores[i][0];
      to[32] = scores[i][1];
    }
#pragma unroll 1
    for (std::int32_t i = 0; i < rows_; ++i) soften(first, row(i));
#pragma unroll
    for (std::int32_t s = 0; s < kSlices; ++s) {
      if (s * core::kSimtSlice >= a.v_head_dim) break;
      load_slice(memory_, memory_.v_rows, a.kv_dtype, s * core::kSimtSlice, a.v_head_dim);
      multiply_pv(output_[s]);
    }
  }

  // Maximum (log2 units) and sum of row i. A row that saw NaN alone has no maximum, but is not
  // empty.
  __device__ tile::RowStats stats(std::int32_t i) const {
    const tile::RowStats kept = memory_.rows[row(i)].pass;
    const bool odd = kept.maximum == -INFINITY && kept.sum != 0.0f;
    return {odd ? kept.sum : kept.maximum, kept.sum};
  }

  // Calls take(column, values) for every two neighbouring elements of row i that this lane has.
  template <class Take>
  __device__ void for_each_pair(std::int32_t i, Take&& take) const {
#pragma unroll
    for (std::int32_t s = 0; s < kSlices; ++s) {
      const std::int32_t column = s * core::kSimtSlice + 2 * lane();
      if (column < p_.a.v_head_dim) take(column, output_[s][i]);
    }
  }

 private:
  static_assert(core::kSimtSlice == 64 && kKeys == 64);

  // Adds the products of a slice of columns; a lane has keys lane and lane + 32.
  __device__ void multiply_qk(std::int32_t first, float (&scores)[kWarpRows][2]) const {
    const std::int32_t dim = p_.a.head_dim;
    const std::int32_t columns = min(dim - first, core::kSimtSlice);
    const float* keys = memory_.tile + lane() * kStride;
    const float* queries = memory_.q + warp() * dim + first;
#pragma unroll 2
    for (std::int32_t c = 0; c < columns; c += 4) {
      const float4 k[2] = {*reinterpret_cast<const float4*>(keys + c),
                           *reinterpret_cast<const float4*>(keys + 32 * kStride + c)};
#pragma unroll
      for (std::int32_t i = 0; i < kWarpRows; ++i) {
        if (i >= rows_) break;
        const float4 q = *reinterpret_cast<const float4*>(queries + i * core::kSimtWarps * dim + c);
#pragma unroll
        for (std::int32_t j = 0; j < 2; ++j) {
          scores[i][j] = fmaf(q.x, k[j].x, scores[i][j]);
          scores[i][j] = fmaf(q.y, k[j].y, scores[i][j]);
          scores[i][j] = fmaf(q.z, k[j].z, scores[i][j]);
          scores[i][j] = fmaf(q.w, k[j].w, scores[i][j]);
        }
      }
    }
  }

  // Raw products of a row to weights, in place.
  __device__ void soften(std::int32_t first, std::int32_t r) const {
    Row& row = memory_.rows[r];
    float* weights = memory_.weights + r * kKeys + lane();
    float x[2];
    std::uint32_t seen[2];
#pragma unroll
    for (std::int32_t j = 0; j < 2; ++j) {
      const std::int32_t at = lane() + 32 * j;
      const bool visible = memory_.k_rows[at] != nullptr && tile::sees(p_.a, row.info, first + at);
      seen[j] = __ballot_sync(~0u, visible);
      x[j] = visible ? tile::transform(p_, row.info, first + at, weights[32 * j]) : -INFINITY;
    }
    const tile::RowStats before = row.pass;
    const float top = fmaxf(before.maximum, largest(fmaxf(x[0], x[1])));
    const float base = top == -INFINITY ? 0.0f : top;
    weights[0] = ptx::exp2(x[0] - base);
    weights[32] = ptx::exp2(x[1] - base);
    const float total = sum_up(weights[0] + weights[32]);
    __syncwarp();
    if (lane() != 0) return;
    row.seen[0] = seen[0];
    row.seen[1] = seen[1];
    const bool any = (seen[0] | seen[1]) != 0;
    row.decay = any ? ptx::exp2(before.maximum - base) : 1.0f;
    if (any) row.pass = {top, fmaf(before.sum, row.decay, total)};
  }

  __device__ static float largest(float x) {
#pragma unroll
    for (std::int32_t lanes = 16; lanes > 0; lanes /= 2)
      x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
  }

  __device__ static float sum_up(float x) {
#pragma unroll
    for (std::int32_t lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
  }

  // Adds weights times values to a slice of the output, key after key.
  __device__ void multiply_pv(float2 (&output)[kWarpRows]) const {
    const float* values = memory_.tile + 2 * lane();
    const float* weights = memory_.weights + warp() * kKeys;
#pragma unroll
    for (std::int32_t i = 0; i < kWarpRows; ++i) {
      if (i >= rows_) break;
      const float decay = memory_.rows[row(i)].decay;
      output[i] = {output[i].x * decay, output[i].y * decay};
    }
#pragma unroll 1
    for (std::int32_t key = 0; key < kKeys; key += 4) {
      float2 v[4];
#pragma unroll
      for (std::int32_t n = 0; n < 4; ++n)
        v[n] = *reinterpret_cast<const float2*>(values + (key + n) * kStride);
#pragma unroll
      for (std::int32_t i = 0; i < kWarpRows; ++i) {
        if (i >= rows_) break;
        const std::uint32_t bits = memory_.rows[row(i)].seen[key / 32] >> (key % 32) & 15u;
        if (bits == 0) continue;
        const float4 w =
            *reinterpret_cast<const float4*>(weights + i * core::kSimtWarps * kKeys + key);
        if (bits == 15u) {
          add_products<true>(bits, {w.x, w.y, w.z, w.w}, v, output[i]);
        } else {
          add_products<false>(bits, {w.x, w.y, w.z, w.w}, v, output[i]);
        }
      }
    }
  }

  // Of four keys those whose bit is set; kAll: all are.
  template <bool kAll>
  __device__ static void add_products(std::uint32_t bits, const float (&w)[4], const float2 (&v)[4],
                                      float2& sum) {
#pragma unroll
    for (std::int32_t n = 0; n < 4; ++n) {
      if (!kAll && (bits >> n & 1u) == 0) continue;
      sum.x = fmaf(w[n], v[n].x, sum.x);
      sum.y = fmaf(w[n], v[n].y, sum.y);
    }
  }

  const tile::AttentionParams& p_;
  const Memory& memory_;
  std::int32_t rows_;
  float2 output_[kSlices][kWarpRows];  // columns 64 s + 2 lane and the next
};

// Ends row i of this warp's rows of a block; its LSE is stored.
__device__ inline tile::OutputRow end_row(const tile::AttentionParams& p, const Rows& rows,
                                          std::int32_t i, const tile::RowStats& stats) {
  const tile::PackedRow at = tile::unpack(p, rows.kv_head, rows.first + Pass::row(i));
  return tile::end_row(p.a, rows.request, at.row, at.head, stats.maximum, stats.sum, lane() == 0);
}

}  // namespace tilewise::cuda::simt
