// Element conversions of core/types.h against their definition in double arithmetic, for every
// 16-bit value and around every rounding boundary.
#include "core/types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tilewise::core {
namespace {

constexpr std::uint32_t kAll16 = 0x10000;

bool is_nan16(DType type, std::uint32_t h) {
  return type == DType::kBf16 ? (h & 0x7FFF) > 0x7F80 : (h & 0x7FFF) > 0x7C00;
}

float decode(DType type, std::uint32_t h) {
  const auto bits = static_cast<std::uint16_t>(h);
  return type == DType::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

std::uint32_t encode(DType type, float x) {
  return type == DType::kBf16 ? float_to_bf16(x) : float_to_fp16(x);
}

// Value of a 16-bit pattern by the formula: (-1)^s * 1.f * 2^(e - bias), subnormals without the
// leading 1.
double value_of(DType type, std::uint32_t h) {
  const int fraction_bits = type == DType::kBf16 ? 7 : 10, bias = type == DType::kBf16 ? 127 : 15;
  const int exponent = static_cast<int>((h & 0x7FFF) >> fraction_bits);
  const double fraction =
      static_cast<double>(h & ((1u << fraction_bits) - 1)) * std::ldexp(1.0, -fraction_bits);
  const double size =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (h & 0x8000) != 0 ? -size : size;
}

class Types16 : public testing::TestWithParam<DType> {
 protected:
  std::uint32_t infinity() const { return GetParam() == DType::kBf16 ? 0x7F80 : 0x7C00; }
};

TEST_P(Types16, EveryPatternDecodesToItsValueAndBack) {
  for (std::uint32_t h = 0; h < kAll16; ++h) {
    const float x = decode(GetParam(), h);
    if (is_nan16(GetParam(), h)) {
      ASSERT_TRUE(std::isnan(x)) << h;
      ASSERT_TRUE(is_nan16(GetParam(), encode(GetParam(), x))) << h;
      continue;
    }
    if ((h & 0x7FFF) == infinity()) {
      ASSERT_TRUE(std::isinf(x)) << h;
    } else {
      ASSERT_EQ(static_cast<double>(x), value_of(GetParam(), h)) << h;
    }
    ASSERT_EQ(encode(GetParam(), x), h);
  }
}

// Between two neighbours a < b: just below the middle rounds to a, just above to b, the middle to
// the even one.
TEST_P(Types16, EveryMidpointRoundsToEven) {
  for (std::uint32_t h = 0; h + 1 < infinity(); ++h) {
    const float middle =
        static_cast<float>((value_of(GetParam(), h) + value_of(GetParam(), h + 1)) / 2);
    const std::uint32_t even = (h & 1) == 0 ? h : h + 1;
    ASSERT_EQ(encode(GetParam(), middle), even) << h;
    ASSERT_EQ(encode(GetParam(), -middle), even | 0x8000) << h;
    ASSERT_EQ(encode(GetParam(), std::nextafter(middle, 0.0f)), h) << h;
    ASSERT_EQ(encode(GetParam(), std::nextafter(middle, HUGE_VALF)), h + 1) << h;
  }
}

TEST_P(Types16, OverflowRoundsToInfinityFromTheMiddleOn) {
  const double largest = value_of(GetParam(), infinity() - 1);
  const double step = largest - value_of(GetParam(), infinity() - 2);
  const auto middle = static_cast<float>(largest + step / 2);
  EXPECT_EQ(encode(GetParam(), middle), infinity());
  EXPECT_EQ(encode(GetParam(), std::nextafter(middle, 0.0f)), infinity() - 1);
  EXPECT_EQ(encode(GetParam(), std::numeric_limits<float>::max()), infinity());
  EXPECT_EQ(encode(GetParam(), -HUGE_VALF), infinity() | 0x8000);
}

TEST_P(Types16, LoadStoreAndRoundAgree) {
  // Six, since the compiler takes the branch for floats into account.
  alignas(4) std::uint16_t row[6] = {};
  for (const float x : {0.0f, -0.0f, 1.0f, 0.1f, -3.14159f, 1e-7f, 65504.0f}) {
    store_element(row, GetParam(), 1, x);
    EXPECT_EQ(row[1], encode(GetParam(), x));
    EXPECT_EQ(bits_of(load_element(row, GetParam(), 1)), bits_of(round_to(GetParam(), x)));
    EXPECT_EQ(row[0] | row[2], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Types16, testing::Values(DType::kBf16, DType::kFp16));

TEST(Types, FloatPassesUnchanged) {
  float row[2] = {};
  store_element(row, DType::kFp32, 1, 0.1f);
  EXPECT_EQ(row[1], 0.1f);
  EXPECT_EQ(load_element(row, DType::kFp32, 1), 0.1f);
  EXPECT_EQ(round_to(DType::kFp32, 0.1f), 0.1f);
  EXPECT_EQ(size_of(DType::kFp32), 4);
  EXPECT_EQ(size_of(DType::kBf16), 2);
}

}  // namespace
}  // namespace tilewise::core
