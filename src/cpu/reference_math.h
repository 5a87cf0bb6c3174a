// What the float64 oracles share: elements as doubles, and one rounding from double to an element
// type.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/types.h"

namespace tilewise::cpu {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

inline double load_double(const void* base, core::DType type, std::int64_t index) {
  return static_cast<double>(core::load_element(base, type, index));
}

// `x` as a float that rounds to any 16-bit type as `x` itself would: what float cannot hold goes
// into its last bit (round to odd), so that the two roundings never meet at a tie.
inline float to_odd_float(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || std::isnan(x)) return nearest;
  const bool away = std::fabs(static_cast<double>(nearest)) > std::fabs(x);
  const float truncated = away ? std::nextafterf(nearest, 0.0f) : nearest;
  return core::float_of(core::bits_of(truncated) | 1u);
}

// One rounding to nearest even.
inline void store_double(void* base, core::DType type, std::int64_t index, double x) {
  core::store_element(base, type, index,
                      type == core::DType::kFp32 ? static_cast<float>(x) : to_odd_float(x));
}

// `x` as it would be read back after a store to `type`.
inline double round_double(core::DType type, double x) {
  if (type == core::DType::kFp32) return static_cast<double>(static_cast<float>(x));
  return static_cast<double>(core::round_to(type, to_odd_float(x)));
}

// sigmoid, tanh cap: the same formulas wherever an oracle needs them.
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double soft_cap(double x, double cap) { return cap * std::tanh(x / cap); }

}  // namespace tilewise::cpu
