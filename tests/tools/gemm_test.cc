// Matrix products and row kernels of the runner against plain sums in float64.
#include "generate/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "generate/kernels.h"
#include "tests/tools/random_numbers.h"

namespace tilewise::generate {
namespace {

// Bound of a float32 sum of k products in any order: k roundings of at most the sum of magnitudes.
double sum_bound(std::int64_t k, double magnitude) {
  return static_cast<double>(k + 1) * std::numeric_limits<float>::epsilon() * magnitude;
}

struct Shape {
  std::int64_t rows, n, k;
};

class Gemm : public testing::TestWithParam<Shape> {};

TEST_P(Gemm, IsTheSumOfProductsForAnyNumberOfThreads) {
  const auto [rows, n, k] = GetParam();
  const std::int64_t ldx = k + 3;
  const std::int64_t ldy = n + 5;
  const auto x = random_floats(static_cast<std::size_t>(rows * ldx), 1);
  const auto w = random_bf16(static_cast<std::size_t>(n * k), 2);
  constexpr float kUntouched = 77.0f;
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<std::size_t>(rows * ldy), kUntouched);
    multiply(pool, {x.data(), ldx, rows, k}, {{w.data(), n, y.data(), ldy}});
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << threads << " threads change a bit";
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < ldy; ++c) {
      const float got = first[static_cast<std::size_t>(r * ldy + c)];
      if (c >= n) {
        EXPECT_EQ(got, kUntouched);
        continue;
      }
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const double term = double{x[static_cast<std::size_t>(r * ldx + i)]} *
                            double{bf16_float(w[static_cast<std::size_t>(c * k + i)])};
        sum += term;
        magnitude += std::abs(term);
      }
      ASSERT_NEAR(got, sum, sum_bound(k, magnitude)) << r << ", " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gemm,
                         testing::Values(Shape{1, 1, 1}, Shape{1, 5, 7}, Shape{1, 64, 576},
                                         Shape{2, 17, 33}, Shape{5, 48, 100}, Shape{6, 31, 64},
                                         Shape{7, 96, 40}, Shape{13, 20, 129}, Shape{64, 50, 24},
                                         Shape{65, 50, 24}, Shape{70, 300, 37}, Shape{90, 577, 16}),
                         [](const auto& param) {
                           return std::to_string(param.param.rows) + "x" +
                                  std::to_string(param.param.n) + "x" +
                                  std::to_string(param.param.k);
                         });

TEST(Gemm, DoesThreeProductsInOneGo) {
  constexpr std::int64_t kK = 24;
  constexpr std::int64_t kN[] = {40, 7, 19};
  const auto x = random_floats(3 * kK, 3);
  std::vector<std::vector<std::uint16_t>> w;
  for (const std::int64_t n : kN) {
    w.push_back(random_bf16(static_cast<std::size_t>(n * kK), static_cast<std::uint32_t>(n)));
  }
  ThreadPool pool(2);
  std::vector<float> together(3 * 66);
  std::vector<float> apart(3 * 66);
  multiply(pool, {x.data(), kK, 3, kK},
           {{w[0].data(), kN[0], together.data(), 66},
            {w[1].data(), kN[1], together.data() + 40, 66},
            {w[2].data(), kN[2], together.data() + 47, 66}});
  std::int64_t column = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    multiply(pool, {x.data(), kK, 3, kK}, {{w[i].data(), kN[i], apart.data() + column, 66}});
    column += kN[i];
  }
  EXPECT_EQ(together, apart);
}

TEST(Gemm, GivesARowTheSameBitsWhateverStandsBesideIt) {
  constexpr std::int64_t kRows = 13, kN = 64, kK = 100;
  const auto x = random_floats(kRows * kK, 4);
  const auto w = random_bf16(kN * kK, 5);
  ThreadPool pool(1);
  std::vector<float> batch(kRows * kN);
  multiply(pool, {x.data(), kK, kRows, kK}, {{w.data(), kN, batch.data(), kN}});
  std::vector<float> alone(kRows * kN);
  for (std::int64_t r = 0; r < kRows; ++r) {
    multiply(pool, {x.data() + r * kK, kK, 1, kK}, {{w.data(), kN, alone.data() + r * kN, kN}});
  }
  EXPECT_EQ(batch, alone);
}

TEST(RowKernels, AgreeWithFloat64AtOddLengths) {
  for (const std::int64_t n : {1, 3, 15, 16, 17, 100, 576}) {
    const auto size = static_cast<std::size_t>(n);
    const auto x = random_floats(size, 6);
    const auto weight = random_floats(size, 7);
    std::vector<float> normed(size), gate = x, sum = x;
    rms_norm_row(x.data(), weight.data(), n, 1e-5f, normed.data());
    silu_multiply(gate.data(), weight.data(), n);
    add_row(sum.data(), weight.data(), n);
    double squares = 0;
    for (const float value : x) squares += double{value} * double{value};
    const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(normed[i], x[i] * factor * weight[i], 1e-6 * factor);
      EXPECT_NEAR(gate[i], x[i] / (1 + std::exp(-double{x[i]})) * weight[i], 1e-6);
      EXPECT_EQ(sum[i], x[i] + weight[i]);
    }
  }
}

TEST(RowKernels, ActivationHoldsAtItsEnds) {
  std::vector<float> gate(32, -200.0f);
  const std::vector<float> up(32, 1.0f);
  gate[1] = 200.0f;
  gate[2] = 0.0f;
  silu_multiply(gate.data(), up.data(), 32);
  EXPECT_NEAR(gate[0], 0.0f, 1e-30f);
  EXPECT_EQ(gate[1], 200.0f);
  EXPECT_EQ(gate[2], 0.0f);
}

TEST(RowKernels, WideningIsExact) {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(bits.size());
  widen_bf16(bits.data(), static_cast<std::int64_t>(bits.size()), wide.data());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    std::uint32_t got = 0;
    std::memcpy(&got, &wide[i], sizeof(got));
    ASSERT_EQ(got, std::uint32_t{bits[i]} << 16);
  }
}

}  // namespace
}  // namespace tilewise::generate
