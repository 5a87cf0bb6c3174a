// Element types and their scalar conversions. 16-bit conversions round to nearest even and keep NaN
// a NaN; they are the definition that every vector or tile conversion is tested against.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

namespace tilewise::core {

enum class DType : std::int32_t { kBf16 = 1, kFp16 = 2, kFp32 = 3 };

TW_DEVICE constexpr int size_of(DType type) { return type == DType::kFp32 ? 4 : 2; }

constexpr const char* name_of(DType type) {
  return type == DType::kBf16 ? "bf16" : type == DType::kFp16 ? "fp16" : "fp32";
}

TW_DEVICE inline std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

TW_DEVICE inline float float_of(std::uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

TW_DEVICE inline float bf16_to_float(std::uint16_t h) {
  return float_of(static_cast<std::uint32_t>(h) << 16);
}

TW_DEVICE inline std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

TW_DEVICE inline float fp16_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1Fu;
  const std::uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1Fu) return float_of(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Subnormal: the value is mantissa * 2^-24, exact in float.
  const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
  return float_of(sign | bits_of(magnitude));
}

TW_DEVICE inline std::uint16_t float_to_fp16(float x) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<std::uint16_t>(sign | 0x7C00u);  // >= 65520
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 leaves the value's multiple of 2^-24, rounded to even, in the low
    // mantissa bits.
    const float shifted = float_of(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_of(shifted) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

// Element `index` of an array of `type`, as float.
TW_DEVICE inline float load_element(const void* base, DType type, std::int64_t index) {
  if (type == DType::kFp32) return static_cast<const float*>(base)[index];
  const std::uint16_t h = static_cast<const std::uint16_t*>(base)[index];
  return type == DType::kBf16 ? bf16_to_float(h) : fp16_to_float(h);
}

TW_DEVICE inline void store_element(void* base, DType type, std::int64_t index, float value) {
  if (type == DType::kFp32) {
    static_cast<float*>(base)[index] = value;
  } else {
    static_cast<std::uint16_t*>(base)[index] =
        type == DType::kBf16 ? float_to_bf16(value) : float_to_fp16(value);
  }
}

// `value` as it would be read back after a store to `type`.
TW_DEVICE inline float round_to(DType type, float value) {
  if (type == DType::kFp32) return value;
  return type == DType::kBf16 ? bf16_to_float(float_to_bf16(value))
                              : fp16_to_float(float_to_fp16(value));
}

}  // namespace tilewise::core
