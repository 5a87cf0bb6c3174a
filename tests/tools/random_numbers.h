// Reproducible random numbers for the tests of the generate command, and bf16 rounding of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace tilewise::generate {

inline std::uint16_t bf16_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7FFF + ((bits >> 16) & 1);
  return static_cast<std::uint16_t>(bits >> 16);
}

inline float bf16_float(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

inline std::vector<float> random_floats(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    value = static_cast<float>(static_cast<std::int32_t>(random() >> 8) - (1 << 23)) * 0x1p-23f;
  }
  return values;
}

inline std::vector<std::uint16_t> random_bf16(std::size_t n, std::uint32_t seed) {
  std::vector<std::uint16_t> bits(n);
  const std::vector<float> values = random_floats(n, seed);
  for (std::size_t i = 0; i < n; ++i) bits[i] = bf16_bits(values[i]);
  return bits;
}

}  // namespace tilewise::generate
