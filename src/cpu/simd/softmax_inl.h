// Online softmax of one row over one tile of 64 keys, once per target; what both bodies share.
#if defined(TW_CPU_SIMD_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TW_CPU_SIMD_SOFTMAX_INL_H_
#undef TW_CPU_SIMD_SOFTMAX_INL_H_
#else
#define TW_CPU_SIMD_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/simd/kernels.h"
#include "cpu/simd/math_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr std::int64_t kTileVectors = kTileKeys / kLanes;

// From dot products to logits in log2 units: s * scale, and for the plain ones nothing else.
struct Logits {
  float scale;  // of the last step
  bool plain;   // neither soft-cap nor ALiBi
  bool capped;
  float cap_in, cap_out;  // cap_out * tanh(s * cap_in)
  float scale_log2;
};

HWY_INLINE Logits logits_of(const core::Attention& a) {
  constexpr float kLog2e = 1.44269504088896340736f;
  Logits logits{};
  logits.scale_log2 = a.scale * kLog2e;
  logits.capped = a.softcap > 0.0f;
  logits.plain = !logits.capped && a.alibi == nullptr;
  logits.scale = logits.plain ? logits.scale_log2 : 1.0f;
  if (logits.capped) {
    logits.cap_in = a.scale / a.softcap;
    logits.cap_out = a.softcap * kLog2e;
  }
  return logits;
}

// Soft-cap and ALiBi of a row's 64 dot products, in place. `ahead`: the row's position minus the
// key of lane 0.
HWY_NOINLINE void shape_logits(const Logits& logits, float slope_log2, float ahead, float* s) {
  const FloatTag d;
  const FloatVec slope = hn::Set(d, slope_log2);
  const FloatVec start = hn::Set(d, ahead);
  for (std::int64_t i = 0; i < kTileKeys; i += kLanes) {
    FloatVec x = hn::Load(d, s + i);
    if (logits.capped) {
      x = hn::Mul(tanh_of(hn::Mul(x, hn::Set(d, logits.cap_in))), hn::Set(d, logits.cap_out));
    } else {
      x = hn::Mul(x, hn::Set(d, logits.scale_log2));
    }
    const FloatVec distance = hn::Abs(hn::Sub(start, hn::Iota(d, static_cast<float>(i))));
    hn::Store(hn::NegMulAdd(slope, distance, x), d, s + i);
  }
}

HWY_INLINE hn::Mask<FloatTag> lanes_of(std::uint64_t bits) {
  std::uint8_t bytes[8];
  std::memcpy(bytes, &bits, sizeof bytes);
  return hn::LoadMaskBits(FloatTag(), bytes);
}

struct RowSum {
  float maximum, sum, decay;
};

// Turns a row's dot products `s` into weights and takes them into its maximum and sum. `seen` is
// not 0; with kTested lanes outside it get weight 0, whatever `s` holds there.
template <bool kTested>
HWY_INLINE RowSum weigh_row(float scale, std::uint64_t seen, float maximum, float sum, float* s) {
  const FloatTag d;
  const FloatVec factor = hn::Set(d, scale);
  FloatVec x[kTileVectors];
  FloatVec top[4];
  for (std::int64_t i = 0; i < kTileVectors; ++i) {
    x[i] = hn::Mul(hn::Load(d, s + i * kLanes), factor);
    if (kTested) {
      x[i] = hn::IfThenElse(lanes_of(seen >> (i * kLanes)), x[i], hn::Set(d, -INFINITY));
    }
    top[i % 4] = i < 4 ? x[i] : hn::Max(top[i % 4], x[i]);
  }
  const FloatVec highest = hn::Max(hn::Max(top[0], top[1]), hn::Max(top[2], top[3]));
  const float tile_maximum = hn::GetLane(hn::MaxOfLanes(d, highest));
  RowSum row{tile_maximum > maximum ? tile_maximum : maximum, 0.0f, 0.0f};
  // All logits -inf (a K row of infinities): weights 0, as for a row that sees nothing.
  const FloatVec base = hn::Set(d, row.maximum == -INFINITY ? 0.0f : row.maximum);
  FloatVec total[4];
  for (std::int64_t i = 0; i < kTileVectors; ++i) {
    const FloatVec p = exp2_of(hn::Sub(x[i], base));
    hn::Store(p, d, s + i * kLanes);
    total[i % 4] = i < 4 ? p : hn::Add(total[i % 4], p);
  }
  const FloatVec both = hn::Add(hn::Add(total[0], total[1]), hn::Add(total[2], total[3]));
  row.decay = hn::GetLane(exp2_of(hn::Set(d, maximum - hn::GetLane(base))));
  row.sum = sum * row.decay + hn::GetLane(hn::SumOfLanes(d, both));
  // Maxima may lose a NaN logit on the way; as the row's maximum it stays, through folds too.
  if (row.sum != row.sum) row.maximum = row.sum;
  return row;
}

// One row of a block over one tile: scores in, weights out; maximum, sum and decay of the row.
HWY_INLINE void softmax_row(const Logits& logits, const BlockRows& rows, const KeyTile& tile,
                            std::int64_t row, const BodyScratch& scratch) {
  const FloatTag d;
  float* s = scratch.scores + row * kTileKeys;
  const std::uint64_t seen = tile.seen[row];
  if (seen == 0) {
    for (std::int64_t i = 0; i < kTileKeys; i += kLanes) hn::Store(hn::Zero(d), d, s + i);
    scratch.decay[row] = 1.0f;
    return;
  }
  if (!logits.plain) {
    const float ahead = static_cast<float>(rows.position[row] - tile.first);
    shape_logits(logits, rows.slope_log2[row], ahead, s);
  }
  const float maximum = scratch.maximum[row];
  const float sum = scratch.sum[row];
  const bool all = seen == ~std::uint64_t{0};
  const RowSum result = all ? weigh_row<false>(logits.scale, seen, maximum, sum, s)
                            : weigh_row<true>(logits.scale, seen, maximum, sum, s);
  scratch.maximum[row] = result.maximum;
  scratch.sum[row] = result.sum;
  scratch.decay[row] = result.decay;
}

// State of rows [0, count) before any key.
HWY_INLINE void clear_state(std::int64_t count, const BodyScratch& scratch) {
  std::memset(scratch.output, 0, sizeof(float) * static_cast<std::size_t>(count * scratch.v_pad));
  for (std::int64_t i = 0; i < count; ++i) {
    scratch.maximum[i] = -INFINITY;
    scratch.sum[i] = 0.0f;
  }
}

// Fetches the lines of `bytes` bytes, without loops: many prefetches in a row are dropped by the
// CPU, so they go one by one between arithmetic.
template <std::int64_t kBytes>
HWY_INLINE void prefetch_bytes(const char* at) {
  for (std::int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

// output = decay * output + weights V over `lanes` of a tile, for rows that follow each other.
// Lanes that a row does not see have weight 0, which adds nothing to a sum but a NaN's 0 * NaN.
struct ValueSum {
  const float* weights;  // [rows][64]
  std::uint64_t lanes;
  const void* const* v;  // rows of V, v_dim elements
  std::int64_t v_dim;
  const float* decay;  // [rows]
  float* output;       // [rows][v_pad]
  std::int64_t v_pad;
  const void* const* ahead;  // rows to prefetch on the way
};

// Columns [column, column + kVectors * kLanes); with kHalf the last vector is half a vector.
template <int kRows, int kVectors, bool kHalf, class T>
HWY_INLINE void add_columns(const ValueSum& sum, std::int64_t column) {
  const FloatTag d;
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  float* output = sum.output + column;
  VectorRows<kRows, kVectors> total;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kVectors; ++i) {
      total[r][i] =
          hn::Mul(hn::Load(d, output + r * sum.v_pad + i * kLanes), hn::Set(d, sum.decay[r]));
    }
  }
  for (std::uint64_t left = sum.lanes; left != 0; left &= left - 1) {
    const std::int64_t lane = __builtin_ctzll(left);
    const T* row = static_cast<const T*>(sum.v[lane]) + column;
    const char* ahead = static_cast<const char*>(sum.ahead[lane]);
    prefetch_bytes<kVectors * kLanes * kSize>(ahead + column * kSize);
    Vectors<kVectors> values;
    for (std::int64_t i = 0; i < kVectors; ++i) {
      values[i] = kHalf && i + 1 == kVectors ? load_half(row + i * kLanes)
                                             : load_float(d, row + i * kLanes);
    }
    for (std::int64_t r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(d, sum.weights[r * kTileKeys + lane]);
      for (std::int64_t i = 0; i < kVectors; ++i) {
        total[r][i] = hn::MulAdd(weight, values[i], total[r][i]);
      }
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kVectors; ++i) {
      hn::Store(total[r][i], d, output + r * sum.v_pad + i * kLanes);
    }
  }
}

template <int kRows, class T>
HWY_NOINLINE void add_values(const ValueSum& sum) {
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= sum.v_dim; c += 4 * kLanes) add_columns<kRows, 4, false, T>(sum, c);
  for (; c + kLanes <= sum.v_dim; c += kLanes) add_columns<kRows, 1, false, T>(sum, c);
  if (kHasHalves && c < sum.v_dim) add_columns<kRows, 1, true, T>(sum, c);
}

// The address of a call's function for its cache type.
template <template <class> class F>
HWY_INLINE auto for_type(core::DType type) {
  switch (type) {
    case core::DType::kBf16:
      return &F<Bf16>::run;
    case core::DType::kFp16:
      return &F<Fp16>::run;
    case core::DType::kFp32:
      break;
  }
  return &F<float>::run;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilewise::cpu
HWY_AFTER_NAMESPACE();

#endif  // TW_CPU_SIMD_SOFTMAX_INL_H_
