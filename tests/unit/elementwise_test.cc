// tw_output_gate, tw_softcap and tw_scale over every 16-bit value and hostile floats; and the row
// kernels' conversions against the definitions in core/types.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cpu/simd/ops.h"
#include "tests/unit/ops_support.h"

namespace tilewise::testing {
namespace {

using core::DType;
using core::ElementwiseOp;

constexpr float kInf = std::numeric_limits<float>::infinity();

bool same_value(float a, float b) {
  return core::bits_of(a) == core::bits_of(b) || (std::isnan(a) && std::isnan(b));
}

// Every value of a 16-bit type; for fp32 every exponent, some fractions, both signs.
Elements every_value(DType type) {
  Elements x(type, 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) {
    if (type == DType::kFp32) {
      x.set(i, core::float_of(i << 16 | (i * 40503u & 0xFFFFu)));
    } else {
      static_cast<std::uint16_t*>(x.data())[i] = static_cast<std::uint16_t>(i);
    }
  }
  return x;
}

// Distance between neighbours of `type` around x.
double ulp_of(DType type, double x) {
  const int digits = type == DType::kBf16 ? 8 : type == DType::kFp16 ? 11 : 24;
  const int least = type == DType::kFp16 ? -14 : -126;
  const int exponent = x == 0 ? least : std::max(std::ilogb(x), least);
  return std::ldexp(1.0, exponent - digits + 1);
}

class ElementwiseOfType : public ::testing::TestWithParam<DType> {
 protected:
  static void run(ElementwiseOp op, Elements* x, float value, std::int32_t workers = 2) {
    cpu::run_elementwise({op, x->type(), x->data(), x->count(), value}, threads(workers));
  }
};

INSTANTIATE_TEST_SUITE_P(Types, ElementwiseOfType, ::testing::ValuesIn(kAllTypes), type_of);

TEST_P(ElementwiseOfType, KernelsConvertAsTheTypesAreDefined) {
  const cpu::OpsKernels& kernels = cpu::ops_kernels(GetParam());
  const Elements x = every_value(GetParam());
  std::vector<float> loaded(65536);
  kernels.load(x.data(), 65536, loaded.data());
  for (std::int64_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(core::bits_of(loaded[static_cast<std::size_t>(i)]), core::bits_of(x[i])) << i;
  }
  // Floats: all upper halves with lower halves at, below and above each tie.
  const std::uint32_t lows[] = {0,      1,      0x0FFF, 0x1000, 0x1001, 0x2FFF,
                                0x3000, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF};
  for (const std::uint32_t low : lows) {
    for (std::uint32_t i = 0; i < 65536; ++i) loaded[i] = core::float_of(i << 16 | low);
    Elements stored(GetParam(), 65536);
    Elements wanted(GetParam(), 65536);
    kernels.store(loaded.data(), 65536, stored.data());
    for (std::int64_t i = 0; i < 65536; ++i) wanted.set(i, loaded[static_cast<std::size_t>(i)]);
    ASSERT_EQ(stored, wanted) << low;
  }
}

TEST_P(ElementwiseOfType, CapsEveryValue) {
  for (const float cap : {30.0f, 1.0f, 1e-30f, 3e38f}) {
    const Elements before = every_value(GetParam());
    Elements x = before;
    run(ElementwiseOp::kSoftcap, &x, cap);
    for (std::int64_t i = 0; i < 65536; ++i) {
      if (std::isnan(before[i])) {
        ASSERT_TRUE(std::isnan(x[i]));
        continue;
      }
      const double exact = double{cap} * std::tanh(double{before[i]} / double{cap});
      if (std::fabs(exact) > 60000.0 && GetParam() == DType::kFp16) continue;  // may overflow
      // Four float ulps of the function, one rounding, and subnormal quotients of huge caps.
      const double tolerance =
          ulp_of(GetParam(), exact) + std::fabs(exact) * 0x1p-21 + double{cap} * 0x1p-148;
      ASSERT_NEAR(double{x[i]}, exact, tolerance) << before[i] << " cap " << cap;
      ASSERT_EQ(std::signbit(x[i]), std::signbit(before[i]));
    }
  }
}

TEST_P(ElementwiseOfType, CapsHugeValuesToTheCap) {
  Elements x(GetParam(), 4);
  const float huge = GetParam() == DType::kFp16 ? 65504.0f : 3e38f;
  const float values[] = {huge, -huge, kInf, -kInf};
  for (std::int64_t i = 0; i < 4; ++i) x.set(i, values[i]);
  run(ElementwiseOp::kSoftcap, &x, 30.0f);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(x[i], i % 2 == 0 ? 30.0f : -30.0f);
}

TEST_P(ElementwiseOfType, ScalesEveryValueWithOneRounding) {
  for (const float factor : {0.125f, -1.7f, 0.0f, 3e30f}) {
    const Elements before = every_value(GetParam());
    Elements x = before;
    run(ElementwiseOp::kScale, &x, factor);
    for (std::int64_t i = 0; i < 65536; ++i) {
      ASSERT_TRUE(same_value(x[i], core::round_to(GetParam(), before[i] * factor))) << before[i];
    }
  }
}

TEST_P(ElementwiseOfType, TouchesItsElementsOnlyWhateverTheCount) {
  for (const std::int64_t n : {0, 1, 15, 17, 255, 257, 16383, 16385, 70000}) {
    for (const ElementwiseOp op : {ElementwiseOp::kSoftcap, ElementwiseOp::kScale}) {
      Elements x(GetParam(), n + 20);
      for (std::int64_t i = 0; i < n; ++i) x.set(i, 1.0f);
      cpu::run_elementwise({op, GetParam(), x.data(), n, 2.0f}, threads(3));
      EXPECT_TRUE(x.untouched(n, n + 20) && x.guards_intact());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(x[i], x[0]);
    }
  }
}

TEST_P(ElementwiseOfType, GatesByTheSigmoidOfEveryValue) {
  const Elements gate = every_value(GetParam());
  Elements o(GetParam(), 65536);
  for (std::int64_t i = 0; i < 65536; ++i) o.set(i, 1.0f + 0.25f * normal(1, 0, i));
  const Elements before = o;
  cpu::run_output_gate({GetParam(), 64, 8, 128, o.data(), 8 * 128, 128, gate.data(), 8 * 128, 128},
                       threads(2));
  for (std::int64_t i = 0; i < 65536; ++i) {
    if (std::isnan(gate[i])) {
      ASSERT_TRUE(std::isnan(o[i]));
      continue;
    }
    const double exact = double{before[i]} / (1.0 + std::exp(-double{gate[i]}));
    // Two float ulps of exp, two more of the quotient, one rounding; below e^-87 exp may be
    // flushed.
    const double tolerance = ulp_of(GetParam(), exact) + std::fabs(exact) * 0x1p-21 + 0x1p-125;
    ASSERT_NEAR(double{o[i]}, exact, tolerance) << gate[i];
  }
}

TEST_P(ElementwiseOfType, GatesStridedRowsAndNothingBetween) {
  // Rows 3 elements apart in o, heads first in the gate.
  constexpr std::int64_t kRows = 5, kHeads = 3, kDim = 20;
  constexpr std::int64_t kRowStride = kHeads * kDim + 3;
  Elements o(GetParam(), kRows * kRowStride);
  Elements gate(GetParam(), kRows * kHeads * kDim);
  gate.fill_normal(2, 0);
  for (std::int64_t i = 0; i < o.count(); ++i) {
    if (i % kRowStride < kHeads * kDim) o.set(i, normal(2, 1, i));
  }
  const Elements before = o;
  cpu::run_output_gate({GetParam(), kRows, kHeads, kDim, o.data(), kRowStride, kDim, gate.data(),
                        kDim, kRows * kDim},
                       threads(1));
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t at = 0; at < kHeads * kDim; ++at) {
      const std::int64_t i = row * kRowStride + at;
      const std::int64_t g = at / kDim * kRows * kDim + row * kDim + at % kDim;
      const double exact = double{before[i]} / (1.0 + std::exp(-double{gate[g]}));
      ASSERT_NEAR(double{o[i]}, exact, 3 * ulp_of(GetParam(), exact));
    }
    EXPECT_TRUE(o.untouched(row * kRowStride + kHeads * kDim, (row + 1) * kRowStride));
  }
  EXPECT_TRUE(o.guards_intact());
}

}  // namespace
}  // namespace tilewise::testing
