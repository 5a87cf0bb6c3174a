// See sampler.h.
#include "generate/sampler.h"

#include <algorithm>
#include <cmath>

namespace tilewise::generate {
namespace {

std::mt19937_64 seeded(std::uint64_t seed, std::uint64_t stream) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  std::seed_seq words{low(seed), high(seed), low(stream), high(stream)};
  return std::mt19937_64(words);
}

}  // namespace

std::int32_t argmax(const float* logits, std::int32_t n) {
  std::int32_t best = 0;
  for (std::int32_t i = 1; i < n; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

Sampler::Sampler(double temperature, std::uint64_t seed, std::uint64_t stream)
    : temperature_(temperature), random_(seeded(seed, stream)) {}

std::int32_t Sampler::next(const float* logits, std::int32_t n) {
  const std::int32_t best = argmax(logits, n);
  if (temperature_ == 0) return best;
  cumulative_.resize(static_cast<std::size_t>(n));
  double sum = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    sum += std::exp((double{logits[i]} - double{logits[best]}) / temperature_);
    cumulative_[static_cast<std::size_t>(i)] = sum;
  }
  // 53 random bits make a double in [0, 1), the same with every standard library.
  const double draw = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  const auto chosen = std::upper_bound(cumulative_.begin(), cumulative_.end(), draw);
  if (chosen == cumulative_.end()) return best;
  return static_cast<std::int32_t>(chosen - cumulative_.begin());
}

}  // namespace tilewise::generate
