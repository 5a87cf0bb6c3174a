// Conversion of 16-bit elements to float32 (PTX ISA 9.7.9 cvt). Exact.
#pragma once

#include <cstdint>

namespace tilewise::cuda::ptx {

__device__ inline float half_to_float(std::uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;\n" : "=f"(x) : "h"(h));
  return x;
}

}  // namespace tilewise::cuda::ptx
