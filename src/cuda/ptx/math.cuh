// Matrix multiply-accumulate on tensor cores, packing to 16 bits, and the one exponential of the
// CUDA backend (PTX ISA 9.7.14 mma, 9.7.3 ex2 and tanh, 9.7.9 cvt).
#pragma once

#include <cstdint>

#include "core/variant.h"

namespace tilewise::cuda::ptx {

// c += a * b with a 16x16, b 16x8 (column major), c 16x8 in float32.
template <class Element>
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1);

template <>
__device__ inline void multiply_add<core::Bf16>(float (&c)[4], const std::uint32_t (&a)[4],
                                                std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ inline void multiply_add<core::Fp16>(float (&c)[4], const std::uint32_t (&a)[4],
                                                std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats to nearest even in one register, `low` in its low half.
template <class Element>
__device__ inline std::uint32_t pack(float low, float high);

template <>
__device__ inline std::uint32_t pack<core::Bf16>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

template <>
__device__ inline std::uint32_t pack<core::Fp16>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Keeps a value in its register: the compiler would rather compute an address anew in a loop, from
// special registers that are slow to read. No instruction.
__device__ inline void keep(std::uint32_t& x) { asm volatile("" : "+r"(x)); }
__device__ inline void keep(const char*& x) { asm volatile("" : "+l"(x)); }

// The same value in every lane, known as such to the compiler: lane 0's.
__device__ inline std::int32_t uniform(std::int32_t x) { return __shfl_sync(~0u, x, 0); }

// 2^x; 0 for -inf. Every exponential of logits goes through here, so that bits do not depend on
// compiler flags.
__device__ inline float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tilewise::cuda::ptx
