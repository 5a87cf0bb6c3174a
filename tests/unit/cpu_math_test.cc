// The vector kernels' elementary functions and loads, against float64 and core/types.h, for every
// instruction set that this machine has. This unit is compiled once for each, as the kernels are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/types.h"
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/cpu_math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which reads this file once for each target.
#include "cpu/simd/math_inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::testing {
namespace HWY_NAMESPACE {
namespace {

using cpu::HWY_NAMESPACE::kLanes;

// y = f(x); x and y are padded to whole vectors.
template <class F>
void apply(const float* x, std::int64_t count, float* y, F f) {
  const cpu::HWY_NAMESPACE::FloatTag d;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    hwy::HWY_NAMESPACE::StoreU(f(hwy::HWY_NAMESPACE::LoadU(d, x + i)), d, y + i);
  }
}

void exp2_all(const float* x, std::int64_t count, float* y) {
  apply(x, count, y, [](auto v) HWY_ATTR { return cpu::HWY_NAMESPACE::exp2_of(v); });
}

void tanh_all(const float* x, std::int64_t count, float* y) {
  apply(x, count, y, [](auto v) HWY_ATTR { return cpu::HWY_NAMESPACE::tanh_of(v); });
}

void convert(const void* row, core::DType type, std::int64_t dims, std::int64_t padded, float* to) {
  namespace simd = cpu::HWY_NAMESPACE;
  switch (type) {
    case core::DType::kBf16:
      return simd::convert_to_float(static_cast<const simd::Bf16*>(row), dims, padded, to);
    case core::DType::kFp16:
      return simd::convert_to_float(static_cast<const simd::Fp16*>(row), dims, padded, to);
    case core::DType::kFp32:
      return simd::convert_to_float(static_cast<const float*>(row), dims, padded, to);
  }
}

std::int64_t lanes() { return kLanes; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilewise::testing
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::testing {
namespace {

HWY_EXPORT(exp2_all);
HWY_EXPORT(tanh_all);
HWY_EXPORT(convert);
HWY_EXPORT(lanes);

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Each test runs with dispatch set to one target.
class CpuMath : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::GetChosenTarget().Update(GetParam()); }
  void TearDown() override { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }
};

INSTANTIATE_TEST_SUITE_P(Targets, CpuMath, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

// Units in the last place of float between `got` and the exact `want`.
double ulps(float got, double want) {
  const int exponent = std::max(want == 0 ? -126 : std::ilogb(want), -126);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

std::vector<float> grid(float low, float high, std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = low + (high - low) * (static_cast<float>(i) / static_cast<float>(count));
  }
  return x;
}

TEST_P(CpuMath, RunsTheTargetThatItIsGiven) {
  const std::int64_t want = GetParam() == HWY_SCALAR ? 1
                            : GetParam() == HWY_AVX2 ? 8
                            : GetParam() == HWY_AVX3 ? 16
                                                     : 4;
  EXPECT_EQ(HWY_DYNAMIC_DISPATCH(lanes)(), want);
}

// Largest distance, in ulps, of what `run` gives on a grid from `exact`.
template <class Run>
double worst_ulps(float low, float high, Run&& run, double (*exact)(double)) {
  const std::vector<float> x = grid(low, high, 1 << 20);
  std::vector<float> y(x.size());
  run(x.data(), 1 << 20, y.data());
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, ulps(y[i], exact(static_cast<double>(x[i]))));
  }
  return worst;
}

TEST_P(CpuMath, Exp2IsWithinAnUlpAndAHalf) {
  const double worst = worst_ulps(-126.0f, 1.0f, HWY_DYNAMIC_DISPATCH(exp2_all), std::exp2);
  EXPECT_LT(worst, 1.5);
  EXPECT_GT(worst, 0.4);  // the measure works: a float cannot be nearer than half an ulp
}

TEST_P(CpuMath, Exp2IsExactAtIntegersAndZeroFarDown) {
  std::vector<float> x;
  for (int n = -126; n <= 127; ++n) x.push_back(static_cast<float>(n));
  x.insert(x.end(), {-0.0f, -kInf});
  std::vector<float> y(256, kNaN);
  HWY_DYNAMIC_DISPATCH(exp2_all)(x.data(), 256, y.data());
  for (std::size_t i = 0; i < 254; ++i)
    EXPECT_EQ(y[i], std::ldexp(1.0f, static_cast<int>(i) - 126));
  EXPECT_EQ(y[254], 1.0f);
  EXPECT_EQ(core::bits_of(y[255]), 0u);
  x.assign(16, -1e30f);
  x[1] = -126.001f, x[2] = std::numeric_limits<float>::lowest(), x[3] = kNaN;
  HWY_DYNAMIC_DISPATCH(exp2_all)(x.data(), 16, y.data());
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(core::bits_of(y[i]), 0u) << x[i];
  EXPECT_TRUE(std::isnan(y[3]));
}

TEST_P(CpuMath, TanhIsWithinTwoUlps) {
  const double worst = worst_ulps(-12.0f, 12.0f, HWY_DYNAMIC_DISPATCH(tanh_all), std::tanh);
  EXPECT_LT(worst, 2.0);
}

TEST_P(CpuMath, TanhKeepsZerosSignsAndEnds) {
  std::vector<float> x(16, 0.0f);
  x[1] = -0.0f, x[2] = kInf, x[3] = -kInf, x[4] = kNaN, x[5] = 1e-30f, x[6] = 1e30f;
  std::vector<float> y(16);
  HWY_DYNAMIC_DISPATCH(tanh_all)(x.data(), 16, y.data());
  EXPECT_EQ(core::bits_of(y[0]), core::bits_of(0.0f));
  EXPECT_EQ(core::bits_of(y[1]), core::bits_of(-0.0f));
  EXPECT_EQ(y[2], 1.0f);
  EXPECT_EQ(y[3], -1.0f);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], 1e-30f);
  EXPECT_EQ(y[6], 1.0f);
}

TEST_P(CpuMath, LoadsEverySixteenBitValueAsTheTypesAreDefined) {
  std::vector<std::uint16_t> x(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) x[i] = static_cast<std::uint16_t>(i);
  std::vector<float> y(65536 + 16);
  float* aligned = y.data() + (64 - reinterpret_cast<std::uintptr_t>(y.data()) % 64) / 4 % 16;
  for (const core::DType type : {core::DType::kBf16, core::DType::kFp16}) {
    HWY_DYNAMIC_DISPATCH(convert)(x.data(), type, 65536, 65536, aligned);
    for (std::int64_t i = 0; i < 65536; ++i) {
      const float want = core::load_element(x.data(), type, i);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(aligned[i])) << i;
      } else {
        ASSERT_EQ(core::bits_of(aligned[i]), core::bits_of(want)) << i;
      }
    }
  }
}

// The sanitizers see a read past the row, whose last element is the last of its allocation.
TEST_P(CpuMath, ConvertsRowsOfEveryDimAndPadsThemWithZeros) {
  alignas(64) float to[512];
  for (const core::DType type : {core::DType::kBf16, core::DType::kFp16, core::DType::kFp32}) {
    for (std::int64_t dims = 8; dims <= 512; dims += 8) {
      const std::int64_t padded = (dims + 15) / 16 * 16;
      std::vector<char> row(static_cast<std::size_t>(dims * core::size_of(type)));
      for (std::int64_t i = 0; i < dims; ++i) {
        core::store_element(row.data(), type, i, static_cast<float>(i + 1));
      }
      std::fill(std::begin(to), std::end(to), kNaN);
      HWY_DYNAMIC_DISPATCH(convert)(row.data(), type, dims, padded, to);
      for (std::int64_t i = 0; i < padded; ++i) {
        const float want = i < dims ? core::round_to(type, static_cast<float>(i + 1)) : 0.0f;
        ASSERT_EQ(to[i], want) << dims << " " << i;
      }
      if (padded < 512) {
        ASSERT_TRUE(std::isnan(to[padded])) << dims;
      }
    }
  }
}

}  // namespace
}  // namespace tilewise::testing
#endif  // HWY_ONCE
