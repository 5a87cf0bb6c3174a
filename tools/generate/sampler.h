// Choice of the next token from logits: the best one, or a draw at a temperature.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace tilewise::generate {

// Index of the largest value; the lowest of equals.
std::int32_t argmax(const float* logits, std::int32_t n);

class Sampler {
 public:
  // Temperature 0 is greedy. `stream` keeps the draws of several prompts apart, so that a prompt's
  // text does not depend on its neighbours.
  Sampler(double temperature, std::uint64_t seed, std::uint64_t stream);

  std::int32_t next(const float* logits, std::int32_t n);

 private:
  double temperature_;
  std::mt19937_64 random_;
  std::vector<double> cumulative_;
};

}  // namespace tilewise::generate
