// Elementary functions and element loads of the vector kernels, once per target. Per-target include
// guard: foreach_target.h reads the unit that includes this once for each.
#if defined(TW_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TW_CPU_SIMD_MATH_INL_H_
#undef TW_CPU_SIMD_MATH_INL_H_
#else
#define TW_CPU_SIMD_MATH_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cpu/simd/targets.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::cpu {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a tile of 64 keys is a whole number of vectors, four or more.
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

template <int kCount>
using Vectors = FloatVec[static_cast<std::size_t>(kCount)];
template <int kRows, int kCount>
using VectorRows = Vectors<kCount>[static_cast<std::size_t>(kRows)];

// Registers decide how many accumulators a kernel may hold: 32 (AVX-512, NEON) or 16.
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;

// 2^x for x <= 128, about 1 ulp; exact at integers (2^0 = 1 is what an equal maximum relies on), 0
// below 2^-126, NaN for NaN. Coefficients: minimax of the relative error on [-0.5, 0.5], 1.7e-8.
HWY_INLINE FloatVec exp2_of(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
  const FloatVec shifter = hn::Set(d, 12582912.0f);
  const FloatVec shifted = hn::Add(x, shifter);
  const FloatVec f = hn::Sub(x, hn::Sub(shifted, shifter));
  FloatVec p = hn::Set(d, 0.00015353257185779512f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.0013399003073573112f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.00961843878030777f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550331994891167f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022647738456726f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const FloatVec scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), scaled);
}

// tanh(x), about 2 ulp; +-1 far out, NaN for NaN.
HWY_INLINE FloatVec tanh_of(FloatVec x) {
  const FloatTag d;
  const FloatVec magnitude = hn::Abs(x);
  const FloatVec t = hn::Mul(x, x);
  FloatVec p = hn::Set(d, -0.005895156413316727f);
  p = hn::MulAdd(p, t, hn::Set(d, 0.020795969292521477f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.053783830255270004f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.13331924378871918f));
  p = hn::MulAdd(p, t, hn::Set(d, -0.33333298563957214f));
  const FloatVec near = hn::MulAdd(hn::Mul(x, t), p, x);
  // 1 - 2 / (e^2|x| + 1); from |x| = 9.02 on it is 1. Not Min, which may lose a NaN.
  const FloatVec ten = hn::Set(d, 10.0f);
  const FloatVec bounded = hn::IfThenElse(hn::Gt(magnitude, ten), ten, magnitude);
  const FloatVec one = hn::Set(d, 1.0f);
  const FloatVec e = exp2_of(hn::Mul(bounded, hn::Set(d, 2.885390081777926814f)));
  const FloatVec far = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.6f)), near, far), x);
}

// Storage types of rows, as their pointers say them.
struct Bf16 {
  hwy::bfloat16_t value;
};
struct Fp16 {
  hwy::float16_t value;
};

template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const Bf16* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::bfloat16_t, D>(), &p->value));
}
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR
// Highway's conversion without F16C takes infinities and NaN for numbers above 65504.
template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const Fp16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto h = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  const auto magnitude = hn::And(h, hn::Set(du, 0x7FFFu));
  const auto sign = hn::ShiftLeft<16>(hn::Sub(h, magnitude));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, 112u << 23));
  const auto infinite = hn::Or(shifted, hn::Set(du, 0x7F800000u));
  const auto tiny =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1p-24f)));
  const auto finite = hn::IfThenElse(hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x400)),
                                     hn::BitCast(di, tiny), hn::BitCast(di, normal));
  const auto value = hn::IfThenElse(hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF)),
                                    hn::BitCast(di, infinite), finite);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, value), sign));
}
#else
template <class D>
HWY_INLINE hn::Vec<D> load_float(D d, const Fp16* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), &p->value));
}
#endif

// Rows are multiples of 8 elements: only vectors of 16 lanes meet a row's end inside, and then half
// of them are there. The other half is 0; nothing past the row is read.
constexpr bool kHasHalves = HWY_TARGET == HWY_AVX3;
static_assert(kHasHalves == (kLanes > 8));

template <class T>
HWY_INLINE FloatVec load_half(const T* p) {
#if HWY_TARGET == HWY_AVX3
  return hn::ZeroExtendVector(FloatTag(), load_float(hn::Half<FloatTag>(), p));
#else
  return load_float(FloatTag(), p);
#endif
}

// to[0, dims) = the row, to[dims, padded) = 0.
template <class T>
HWY_INLINE void convert_to_float(const T* row, std::int64_t dims, std::int64_t padded, float* to) {
  const FloatTag d;
  std::int64_t i = 0;
  for (; i + kLanes <= dims; i += kLanes) hn::Store(load_float(d, row + i), d, to + i);
  if (i < dims) {
    hn::Store(load_half(row + i), d, to + i);
    i += kLanes;
  }
  for (; i < padded; i += kLanes) hn::Store(hn::Zero(d), d, to + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilewise::cpu
HWY_AFTER_NAMESPACE();

#endif  // TW_CPU_SIMD_MATH_INL_H_
