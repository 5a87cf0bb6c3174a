// Host versions of src/cuda/ptx/math.cuh.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/variant.h"

namespace tilewise::cuda::ptx {

template <class Element>
float element_of(std::uint64_t word, unsigned half) {
  const auto bits = static_cast<std::uint16_t>(word >> (16 * half));
  return Element::kType == core::DType::kBf16 ? core::bf16_to_float(bits)
                                              : core::fp16_to_float(bits);
}

template <class Element>
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  std::uint64_t left[4][32], right[2][32];
  for (int i = 0; i < 4; ++i) emulator::gather(a[i], left[i]);
  emulator::gather(b0, right[0]);
  emulator::gather(b1, right[1]);
  const unsigned lane = emulator::own_lane();
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4, lower = i / 2, column = 2 * (lane % 4) + i % 2;
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned at = k % 8;
      sum += element_of<Element>(left[lower + 2 * (k / 8)][row * 4 + at / 2], at % 2) *
             element_of<Element>(right[k / 8][column * 4 + at / 2], at % 2);
    }
    c[i] += sum;
  }
}

template <class Element>
std::uint32_t pack(float low, float high) {
  const bool bf16 = Element::kType == core::DType::kBf16;
  const std::uint32_t first = bf16 ? core::float_to_bf16(low) : core::float_to_fp16(low);
  const std::uint32_t second = bf16 ? core::float_to_bf16(high) : core::float_to_fp16(high);
  return first | second << 16;
}

inline void keep(std::uint32_t&) {}
inline void keep(const char*&) {}
inline std::int32_t uniform(std::int32_t x) { return __shfl_sync(~0u, x, 0); }
inline float exp2(float x) { return exp2f(x); }

}  // namespace tilewise::cuda::ptx
