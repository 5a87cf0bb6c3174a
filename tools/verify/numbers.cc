// Rounding, encoding and the seed rule.
#include "verify/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tilewise::verify {
namespace {

struct Format {
  int significand, least_exponent, greatest_exponent;  // value = 1.xxx * 2^exponent
};

Format format_of(tw_dtype type) {
  if (type == TW_DTYPE_BF16) return {8, -126, 127};
  if (type == TW_DTYPE_FP16) return {11, -14, 15};
  return {24, -126, 127};
}

std::uint16_t fp16_bits(double value) {
  const auto sign = static_cast<unsigned>(std::signbit(value) ? 0x8000 : 0);
  const double size = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (size < 0x1p-14)
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(size * 0x1p24));
  const int exponent = std::ilogb(size);
  const auto fraction = static_cast<unsigned>(std::ldexp(size, 10 - exponent)) - 1024u;
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 15) << 10 | fraction);
}

double fp16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  double size = std::ldexp(fraction, -24);
  if (exponent == 31) size = fraction != 0 ? std::nan("") : HUGE_VAL;
  if (exponent > 0 && exponent < 31) size = std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;

}  // namespace

Index element_bytes(tw_dtype type) { return type == TW_DTYPE_FP32 ? 4 : 2; }

double ulp_at(tw_dtype type, double x) {
  const Format f = format_of(type);
  const int exponent = x == 0 ? f.least_exponent : std::max(std::ilogb(x), f.least_exponent);
  return std::ldexp(1.0, exponent - f.significand + 1);
}

double round_to(tw_dtype type, double x) {
  if (!std::isfinite(x)) return x;
  if (type == TW_DTYPE_FP32) return static_cast<double>(static_cast<float>(x));
  const double ulp = ulp_at(type, x);
  const double rounded = std::nearbyint(x / ulp) * ulp;
  const double limit = std::ldexp(1.0, format_of(type).greatest_exponent + 1);
  return std::fabs(rounded) < limit ? rounded : std::copysign(HUGE_VAL, x);
}

void store(void* base, tw_dtype type, Index i, double value) {
  char* to = static_cast<char*>(base) + i * element_bytes(type);
  const auto single = static_cast<float>(round_to(type, value));
  std::uint32_t bits;
  std::memcpy(&bits, &single, sizeof bits);
  if (type == TW_DTYPE_FP32) {
    std::memcpy(to, &bits, sizeof bits);
    return;
  }
  const auto half =
      type == TW_DTYPE_FP16 ? fp16_bits(single) : static_cast<std::uint16_t>(bits >> 16);
  std::memcpy(to, &half, sizeof half);
}

double load(const void* base, tw_dtype type, Index i) {
  const char* from = static_cast<const char*>(base) + i * element_bytes(type);
  float single = 0;
  if (type == TW_DTYPE_FP32) {
    std::memcpy(&single, from, sizeof single);
    return static_cast<double>(single);
  }
  std::uint16_t half;
  std::memcpy(&half, from, sizeof half);
  if (type == TW_DTYPE_FP16) return fp16_value(half);
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
  std::memcpy(&single, &bits, sizeof single);
  return static_cast<double>(single);
}

Stream::Stream(std::uint64_t seed, std::uint64_t tensor) : start_(mix(seed * kStep + tensor)) {}

std::uint64_t Stream::word(Index i) const {
  return mix(start_ + static_cast<std::uint64_t>(i) * kStep);
}

double Stream::uniform(Index i) const {
  return std::ldexp(static_cast<double>(word(i) >> 40), -23) - 1;
}

double Stream::normal(Index element) const {
  const Index i = 3 * element;
  return static_cast<double>(static_cast<float>(uniform(i + 1) + uniform(i + 2) + uniform(i + 3)));
}

}  // namespace tilewise::verify
