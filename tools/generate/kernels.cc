// See kernels.h. Highway compiles this unit once per target.
#include "generate/kernels.h"

#include <cmath>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "generate/kernels.cc"
#include <hwy/foreach_target.h>

// After foreach_target.h, which reads this unit once per target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tilewise::generate {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;

// Four weight rows at once where there are 32 registers; with 16 two rows leave room for six sums
// each.
constexpr std::int64_t kWeightRows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

HWY_INLINE Vec load_bf16(Floats d, const std::uint16_t* bits) {
  const hn::RebindToUnsigned<Floats> wide;
  const hn::Rebind<std::uint16_t, Floats> narrow;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, bits))));
}

// The same values one at a time, for what is left of a row that is no multiple of the vector.
float bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value;
  hwy::CopySameSize(&wide, &value);
  return value;
}

// One tile: `kWide` weight rows from `row` on with `kRows` rows of x from `first` on.
template <std::size_t kWide, std::size_t kRows>
void dot_tile(const DotProblem& p, std::int64_t row, std::int64_t first) {
  const Floats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const std::uint16_t* w = p.w + row * p.k;
  const float* x = p.x + first * p.ldx;
  Vec sums[kWide][kRows];
  for (auto& of_row : sums) {
    for (Vec& sum : of_row) sum = hn::Zero(d);
  }
  const auto wide = static_cast<std::int64_t>(kWide);
  const auto rows = static_cast<std::int64_t>(kRows);
  std::int64_t k = 0;
  for (; k + step <= p.k; k += step) {
    Vec weights[kWide];
    for (std::int64_t i = 0; i < wide; ++i) weights[i] = load_bf16(d, w + i * p.k + k);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Vec value = hn::LoadU(d, x + r * p.ldx + k);
      for (std::int64_t i = 0; i < wide; ++i)
        sums[i][r] = hn::MulAdd(value, weights[i], sums[i][r]);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < wide; ++i) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[i][r]));
      for (std::int64_t j = k; j < p.k; ++j) sum += x[r * p.ldx + j] * bf16_value(w[i * p.k + j]);
      p.y[(first + r) * p.ldy + row + i] = sum;
    }
  }
}

template <std::size_t kRows>
void dot_pass(const DotProblem& p, std::int64_t begin, std::int64_t end, std::int64_t first) {
  std::int64_t row = begin;
  for (; row + kWeightRows <= end; row += kWeightRows) dot_tile<kWeightRows, kRows>(p, row, first);
  for (; row < end; ++row) dot_tile<1, kRows>(p, row, first);
}

using DotPass = void (*)(const DotProblem&, std::int64_t, std::int64_t, std::int64_t);
constexpr DotPass kDotPass[kMaxPassRows] = {dot_pass<1>, dot_pass<2>, dot_pass<3>,
                                            dot_pass<4>, dot_pass<5>, dot_pass<6>};

void dot_rows(const DotProblem& p, std::int64_t begin, std::int64_t end) {
  // Even shares: eight rows are two passes of four, not one of six and one of two. A few weight
  // rows at a time, so that the passes after the first find them in the cache.
  constexpr std::int64_t kBlock = 4 * kWeightRows;
  const std::int64_t passes = (p.rows + kMaxPassRows - 1) / kMaxPassRows;
  for (std::int64_t block = begin; block < end; block += kBlock) {
    const std::int64_t block_end = block + kBlock < end ? block + kBlock : end;
    std::int64_t first = 0;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      const std::int64_t left = passes - pass;
      const std::int64_t count = (p.rows - first + left - 1) / left;
      kDotPass[count - 1](p, block, block_end, first);
      first += count;
    }
  }
}

void widen_bf16(const std::uint16_t* bits, std::int64_t n, float* out) {
  const Floats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(load_bf16(d, bits + i), d, out + i);
  for (; i < n; ++i) out[i] = bf16_value(bits[i]);
}

float sum_of_squares(const float* x, std::int64_t n) {
  const Floats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  Vec a = hn::Zero(d);
  Vec b = a;
  std::int64_t i = 0;
  for (; i + 2 * step <= n; i += 2 * step) {
    const Vec x0 = hn::LoadU(d, x + i);
    const Vec x1 = hn::LoadU(d, x + i + step);
    a = hn::MulAdd(x0, x0, a);
    b = hn::MulAdd(x1, x1, b);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

void rms_norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* out) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const float factor = 1.0f / std::sqrt(mean + eps);
  const Floats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const Vec factors = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const Vec normed = hn::Mul(hn::LoadU(d, x + i), factors);
    hn::StoreU(hn::Mul(normed, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = x[i] * factor * weight[i];
}

void add_row(float* x, const float* delta, std::int64_t n) {
  const Floats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    hn::StoreU(hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, delta + i)), d, x + i);
  }
  for (; i < n; ++i) x[i] += delta[i];
}

void silu_multiply(float* gate, const float* up, std::int64_t n) {
  const Floats d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const Vec one = hn::Set(d, 1.0f);
  // Highway's Exp is not defined past the largest float; 1 + exp(88) still is one.
  const Vec limit = hn::Set(d, 88.0f);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    const Vec x = hn::LoadU(d, gate + i);
    const Vec silu = hn::Div(x, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), limit))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, gate + i);
  }
  for (; i < n; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::generate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::generate {

HWY_EXPORT(dot_rows);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(rms_norm_row);
HWY_EXPORT(add_row);
HWY_EXPORT(silu_multiply);

void dot_rows(const DotProblem& problem, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(dot_rows)(problem, begin, end);
}

void widen_bf16(const std::uint16_t* bits, std::int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(widen_bf16)(bits, n, out);
}

void rms_norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* out) {
  HWY_DYNAMIC_DISPATCH(rms_norm_row)(x, weight, n, eps, out);
}

void add_row(float* x, const float* delta, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_row)(x, delta, n);
}

void silu_multiply(float* gate, const float* up, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(silu_multiply)(gate, up, n);
}

}  // namespace tilewise::generate
#endif
