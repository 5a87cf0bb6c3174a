// The fold: weights, the log of the sum, sinks, against float64 and at their edges.
#include "core/fold.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tilewise::core {
namespace {

TEST(FoldWeight, IsZeroForAChunkThatSawNothing) {
  EXPECT_EQ(fold_weight(-INFINITY, 3.0f), 0.0f);
  EXPECT_EQ(fold_weight(-INFINITY, -INFINITY), 0.0f) << "never the NaN of -inf minus -inf";
  EXPECT_EQ(fold_weight(5.0f, 5.0f), 1.0f);
  EXPECT_EQ(fold_weight(-300.0f, 300.0f), 0.0f);
  EXPECT_EQ(fold_weight(2.0f, 5.0f), 0.125f);
}

TEST(NaturalLse, IsExactForACountOfEqualWeights) {
  for (int n = 1; n < 10000; ++n) {
    EXPECT_EQ(natural_lse(0.0f, static_cast<float>(n)),
              static_cast<float>(std::log(static_cast<double>(n))))
        << n;
  }
}

TEST(NaturalLse, IsMinusInfinityForAnEmptyRow) {
  EXPECT_EQ(natural_lse(-INFINITY, 0.0f), -INFINITY);
  EXPECT_EQ(natural_lse(0.0f, 0.0f), -INFINITY);
  EXPECT_EQ(natural_lse(7.0f, -0.0f), -INFINITY);
}

TEST(NaturalLse, KeepsLargeMaxima) {
  const double ln2 = std::log(2.0);
  for (const float most : {-66855.86f, -1e6f, 1e6f, 3e37f}) {
    const double wanted = static_cast<double>(most) * ln2 + std::log(3.0);
    EXPECT_FLOAT_EQ(natural_lse(most, 3.0f), static_cast<float>(wanted));
  }
}

// Chunks folded in order against the float64 sum of all logits, some chunks empty.
TEST(Fold, OfChunksIsTheSumOverAll) {
  const std::vector<std::vector<double>> chunks = {{}, {1.5, -3}, {}, {4.25, 4, -80}, {-1e3}};
  float most = -INFINITY;
  double expected = 0;
  for (const auto& chunk : chunks) {
    for (const double x : chunk) {
      most = std::max(most, static_cast<float>(x));
      expected += std::exp2(x);
    }
  }
  float sum = 0;
  for (const auto& chunk : chunks) {
    float own_most = -INFINITY, own_sum = 0;
    for (const double x : chunk) own_most = std::max(own_most, static_cast<float>(x));
    for (const double x : chunk) own_sum += std::exp2(static_cast<float>(x) - own_most);
    sum = std::fmaf(own_sum, fold_weight(own_most, most), sum);
  }
  EXPECT_NEAR(static_cast<double>(natural_lse(most, sum)), std::log(expected), 1e-6);
}

TEST(Sink, AddsItsWeightOnceInNaturalUnits) {
  for (const float most : {-20.0f, -1.0f, 0.0f, 9.0f}) {
    for (const float sink : {-30.0f, -1.0f, 0.0f, 3.0f, 60.0f}) {
      const float sum = 5.0f;
      const SinkResult r = enter_sink(most, sum, sink);
      const double weights = std::exp2(static_cast<double>(most)) * 5;
      const double share = weights / (weights + std::exp(static_cast<double>(sink)));
      EXPECT_NEAR(static_cast<double>(r.scale) * 5 / static_cast<double>(r.sum), share,
                  1e-5 * share)
          << most << " " << sink;
    }
  }
}

TEST(Sink, OfMinusInfinityChangesNoBit) {
  for (const float sum : {1.0f, 3.7f, 4097.0f}) {
    const SinkResult r = enter_sink(2.5f, sum, -INFINITY);
    EXPECT_EQ(r.scale, 1.0f);
    EXPECT_EQ(r.sum, sum);
  }
}

TEST(Sink, LeavesAnEmptyRowZero) {
  for (const float sink : {-INFINITY, 0.0f, 30.0f}) {
    const SinkResult r = enter_sink(-INFINITY, 0.0f, sink);
    EXPECT_EQ(r.scale, 0.0f);
    EXPECT_EQ(r.sum, 1.0f) << "a division by it stays finite";
  }
}

TEST(Sink, FarAboveEveryLogitDoesNotOverflow) {
  const SinkResult r = enter_sink(0.0f, 10.0f, 5000.0f);
  EXPECT_EQ(r.scale, 0.0f);
  EXPECT_EQ(r.sum, 1.0f);
}

}  // namespace
}  // namespace tilewise::core
