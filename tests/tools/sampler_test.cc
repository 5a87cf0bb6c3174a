// Choice of tokens: ties, seeds, and draws that follow the distribution.
#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace tilewise::generate {
namespace {

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  const float logits[] = {-1, 3, 2, 3};
  EXPECT_EQ(argmax(logits, 4), 1);
  EXPECT_EQ(Sampler(0, 5, 0).next(logits, 4), 1);
}

std::vector<std::int32_t> draws(double temperature, std::uint64_t seed, std::uint64_t stream) {
  const float logits[] = {0, 1, 2, -1};
  Sampler sampler(temperature, seed, stream);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 4000; ++i) tokens.push_back(sampler.next(logits, 4));
  return tokens;
}

TEST(Sampler, RepeatsItselfForASeedAndOnlyForIt) {
  EXPECT_EQ(draws(1, 7, 0), draws(1, 7, 0));
  EXPECT_NE(draws(1, 7, 0), draws(1, 8, 0));
  EXPECT_NE(draws(1, 7, 0), draws(1, 7, 1));
}

TEST(Sampler, DrawsFollowTheSoftmaxOfTheTemperature) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto tokens = draws(temperature, 3, 0);
    const double weights[] = {1, std::exp(1 / temperature), std::exp(2 / temperature),
                              std::exp(-1 / temperature)};
    const double total = weights[0] + weights[1] + weights[2] + weights[3];
    for (std::int32_t token = 0; token < 4; ++token) {
      const double p = weights[token] / total;
      const auto count = std::count(tokens.begin(), tokens.end(), token);
      // Five standard deviations of a binomial count: false once in about two million.
      EXPECT_NEAR(static_cast<double>(count), 4000 * p, 5 * std::sqrt(4000 * p * (1 - p)));
    }
  }
}

}  // namespace
}  // namespace tilewise::generate
