// Row kernels of the small operations. Plain loops that the compiler turns into vectors of each
// target, because they round exactly as core/types.h says; only the two transcendental ones are
// written in vectors.
#include "cpu/simd/ops.h"

#include "cpu/isa.h"
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which reads this file once for each target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using core::bits_of;
using core::float_of;

struct Fp32 {
  using Storage = float;
  static HWY_INLINE float widen(float x) { return x; }
  static HWY_INLINE float narrow(float x) { return x; }
};

struct Bf16 {
  using Storage = std::uint16_t;
  static HWY_INLINE float widen(Storage h) { return core::bf16_to_float(h); }
  static HWY_INLINE Storage narrow(float x) {
    const std::uint32_t bits = bits_of(x);
    const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40u;
    const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return static_cast<Storage>(nan ? quiet : rounded);
  }
};

// a < b ? yes : no, for a and b below 2^31. Written with a mask, since the compiler would make a
// branch around the arithmetic of a choice by ?:, and then no vector.
HWY_INLINE std::uint32_t if_less(std::uint32_t a, std::uint32_t b, std::uint32_t yes,
                                 std::uint32_t no) {
  const auto mask = static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
  return (yes & mask) | (no & ~mask);
}

struct Fp16 {
  using Storage = std::uint16_t;
  static HWY_INLINE float widen(Storage h) {
    const std::uint32_t magnitude = h & 0x7FFFu;
    const std::uint32_t shifted = magnitude << 13;
    const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f;
    std::uint32_t bits = shifted + (112u << 23);
    bits = if_less(magnitude, 0x7C00u, bits, shifted | 0x7F800000u);
    bits = if_less(magnitude, 0x400u, bits_of(subnormal), bits);
    return float_of(bits | static_cast<std::uint32_t>(h & 0x8000u) << 16);
  }
  static HWY_INLINE Storage narrow(float x) {
    const std::uint32_t bits = bits_of(x);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    // Below 2^-14: adding 0.5 leaves the multiple of 2^-24, rounded to even, in the low mantissa
    // bits.
    const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3F000000u;
    std::uint32_t half = (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    half = if_less(magnitude, 0x38800000u, subnormal, half);
    half = if_less(magnitude, 0x477FF000u, half, 0x7C00u);
    half = if_less(magnitude, 0x7F800001u, half, 0x7E00u);
    return static_cast<Storage>(half | ((bits >> 16) & 0x8000u));
  }
};

template <class E>
HWY_INLINE float rounded(float x) {
  return E::widen(E::narrow(x));
}

template <class E>
void load(const void* from, std::int64_t count, float* __restrict to) {
  const auto* x = static_cast<const typename E::Storage*>(from);
  for (std::int64_t i = 0; i < count; ++i) to[i] = E::widen(x[i]);
}

template <class E>
void store(const float* __restrict from, std::int64_t count, void* to) {
  auto* y = static_cast<typename E::Storage*>(to);
  for (std::int64_t i = 0; i < count; ++i) y[i] = E::narrow(from[i]);
}

// See OpsKernels: 16 lanes, whatever the vector's length, so that every target adds in the same
// order.
float sum_squares(const float* x, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  const hn::CappedTag<float, 16> d;
  constexpr std::int64_t kVector = static_cast<std::int64_t>(hn::MaxLanes(d));
  hn::Vec<hn::CappedTag<float, 16>> sum[kLanes / kVector];
  for (auto& part : sum) part = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const float* at = x + i;
    for (auto& part : sum) {
      const auto v = hn::LoadU(d, at);
      part = hn::Add(part, hn::Mul(v, v));
      at += kVector;
    }
  }
  float lane[kLanes];
  for (std::int64_t l = 0; l < kLanes; l += kVector) hn::StoreU(sum[l / kVector], d, lane + l);
  for (std::int64_t l = 0; i + l < count; ++l) lane[l] += x[i + l] * x[i + l];
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

template <class E>
void scale(const float* __restrict x, float factor, std::int64_t count, float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = rounded<E>(x[i] * factor);
}

template <class E>
void scale_weighted(const float* __restrict x, float factor, const float* __restrict weight,
                    std::int64_t count, float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = rounded<E>(x[i] * factor * weight[i]);
}

template <class E>
void scale_weighted_two_step(const float* __restrict x, float factor,
                             const float* __restrict weight, std::int64_t count,
                             float* __restrict y) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = rounded<E>(rounded<E>(x[i] * factor) * weight[i]);
  }
}

// `Product` is the type that products are rounded to, Fp32 for not at all.
template <class E, class Product>
HWY_INLINE void rotate(float cosine, float sine, float* a, float* b) {
  const float x = *a;
  const float y = *b;
  *a = rounded<E>(rounded<Product>(x * cosine) - rounded<Product>(y * sine));
  *b = rounded<E>(rounded<Product>(y * cosine) + rounded<Product>(x * sine));
}

template <class E, class Product>
void rotate_halves(const float* __restrict cosine, const float* __restrict sine, std::int64_t pairs,
                   float* x) {
  float* __restrict low = x;
  float* __restrict high = x + pairs;
  for (std::int64_t i = 0; i < pairs; ++i) {
    rotate<E, Product>(cosine[i], sine[i], low + i, high + i);
  }
}

template <class E, class Product>
void rotate_interleaved(const float* __restrict cosine, const float* __restrict sine,
                        std::int64_t pairs, float* __restrict x) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    rotate<E, Product>(cosine[i], sine[i], x + 2 * i, x + 2 * i + 1);
  }
}

template <class E>
void accumulate(float weight, const void* row, std::int64_t count, float* __restrict sum) {
  const auto* x = static_cast<const typename E::Storage*>(row);
  for (std::int64_t i = 0; i < count; ++i) sum[i] += weight * E::widen(x[i]);
}

template <class E>
void multiply(float factor, std::int64_t count, void* data) {
  auto* x = static_cast<typename E::Storage*>(data);
  for (std::int64_t i = 0; i < count; ++i) x[i] = E::narrow(E::widen(x[i]) * factor);
}

// f[i] = sigmoid(f[i]), by exp of a number that is never positive, so that nothing overflows. The
// vector functions answer NaN with a number, hence the choice at the end. `count` is padded by the
// caller to whole vectors.
void sigmoid(std::int64_t count, float* f) {
  const hn::ScalableTag<float> d;
  const auto one = hn::Set(d, 1.0f);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, f + i);
    const auto e = hn::Exp(d, hn::Neg(hn::Abs(x)));
    const auto numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one);
    const auto y = hn::Div(numerator, hn::Add(one, e));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(x), x, y), d, f + i);
  }
}

// f[i] = cap * tanh(f[i] / cap), likewise.
void cap_values(float cap, std::int64_t count, float* f) {
  const hn::ScalableTag<float> d;
  const auto vcap = hn::Set(d, cap);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, f + i);
    const auto y = hn::Mul(vcap, hn::Tanh(d, hn::Div(x, vcap)));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(x), x, y), d, f + i);
  }
}

// Pieces of a row that pass through a float buffer; a multiple of every vector length.
constexpr std::int64_t kPiece = 256;

template <class E>
void gate(const void* gates, std::int64_t count, void* o) {
  const auto* g = static_cast<const typename E::Storage*>(gates);
  auto* x = static_cast<typename E::Storage*>(o);
  float f[kPiece] = {};
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t n = count - at < kPiece ? count - at : kPiece;
    load<E>(g + at, n, f);
    sigmoid(n, f);
    for (std::int64_t i = 0; i < n; ++i) x[at + i] = E::narrow(E::widen(x[at + i]) * f[i]);
  }
}

template <class E>
void softcap(float cap, std::int64_t count, void* data) {
  auto* x = static_cast<typename E::Storage*>(data);
  float f[kPiece] = {};
  for (std::int64_t at = 0; at < count; at += kPiece) {
    const std::int64_t n = count - at < kPiece ? count - at : kPiece;
    load<E>(x + at, n, f);
    cap_values(cap, n, f);
    store<E>(f, n, x + at);
  }
}

template <class E>
constexpr OpsKernels kernels_of() {
  return {load<E>,
          store<E>,
          sum_squares,
          scale<E>,
          scale_weighted<E>,
          scale_weighted_two_step<E>,
          rotate_halves<E, Fp32>,
          rotate_halves<E, E>,
          rotate_interleaved<E, Fp32>,
          rotate_interleaved<E, E>,
          accumulate<E>,
          gate<E>,
          softcap<E>,
          multiply<E>};
}

constexpr OpsKernels kBf16 = kernels_of<Bf16>();
constexpr OpsKernels kFp16 = kernels_of<Fp16>();
constexpr OpsKernels kFp32 = kernels_of<Fp32>();

}  // namespace

const OpsKernels* kernels(core::DType type) {
  if (type == core::DType::kFp32) return &kFp32;
  return type == core::DType::kBf16 ? &kBf16 : &kFp16;
}

}  // namespace tilewise::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::cpu {

HWY_EXPORT(kernels);

const OpsKernels& ops_kernels(core::DType type) {
  isa();  // may take targets from the choice
  return *HWY_DYNAMIC_DISPATCH(kernels)(type);
}

}  // namespace tilewise::cpu
#endif
