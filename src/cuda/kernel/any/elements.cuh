// Groups of 8 or of 1 elements of any type, as floats or as they are. Groups of 8 move 128 bits at
// a time: base and offset in bytes are multiples of 16. Conversions are those of core/types.h.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace tilewise::cuda::kernel {

constexpr std::int32_t kGroup = 8;

__device__ inline const void* element_address(const void* base, core::DType type,
                                              std::int64_t index) {
  return static_cast<const char*>(base) + index * core::size_of(type);
}
__device__ inline void* element_address(void* base, core::DType type, std::int64_t index) {
  return static_cast<char*>(base) + index * core::size_of(type);
}

__device__ inline std::uint32_t narrow_pair(core::DType type, float low, float high) {
  const bool bf16 = type == core::DType::kBf16;
  const std::uint32_t first = bf16 ? core::float_to_bf16(low) : core::float_to_fp16(low);
  const std::uint32_t second = bf16 ? core::float_to_bf16(high) : core::float_to_fp16(high);
  return first | second << 16;
}

__device__ inline float widen_half(core::DType type, std::uint32_t half) {
  const auto h = static_cast<std::uint16_t>(half);
  return type == core::DType::kBf16 ? core::bf16_to_float(h) : core::fp16_to_float(h);
}

template <std::int32_t kCount>
__device__ inline void load_group(const void* base, core::DType type, std::int64_t index,
                                  float* x) {
  if constexpr (kCount == 1) {
    x[0] = core::load_element(base, type, index);
  } else if (const void* at = element_address(base, type, index); type == core::DType::kFp32) {
    const float4 low = static_cast<const float4*>(at)[0];
    const float4 high = static_cast<const float4*>(at)[1];
    const float all[kGroup] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (std::int32_t i = 0; i < kGroup; ++i) x[i] = all[i];
  } else {
    const uint4 raw = *static_cast<const uint4*>(at);
    const std::uint32_t words[kGroup / 2] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (std::int32_t i = 0; i < kGroup; ++i) x[i] = widen_half(type, words[i / 2] >> 16 * (i % 2));
  }
}

template <std::int32_t kCount>
__device__ inline void store_group(void* base, core::DType type, std::int64_t index,
                                   const float* x) {
  if constexpr (kCount == 1) {
    core::store_element(base, type, index, x[0]);
  } else if (void* at = element_address(base, type, index); type == core::DType::kFp32) {
    static_cast<float4*>(at)[0] = {x[0], x[1], x[2], x[3]};
    static_cast<float4*>(at)[1] = {x[4], x[5], x[6], x[7]};
  } else {
    *static_cast<uint4*>(at) = {narrow_pair(type, x[0], x[1]), narrow_pair(type, x[2], x[3]),
                                narrow_pair(type, x[4], x[5]), narrow_pair(type, x[6], x[7])};
  }
}

// Keeps the bytes, NaN payloads included.
template <std::int32_t kCount>
__device__ inline void copy_group(void* to, const void* from, core::DType type) {
  const bool fp32 = type == core::DType::kFp32;
  if constexpr (kCount == 1) {
    if (fp32) {
      *static_cast<std::uint32_t*>(to) = *static_cast<const std::uint32_t*>(from);
    } else {
      *static_cast<std::uint16_t*>(to) = *static_cast<const std::uint16_t*>(from);
    }
  } else {
    const uint4 first = *static_cast<const uint4*>(from);
    if (fp32) static_cast<uint4*>(to)[1] = static_cast<const uint4*>(from)[1];
    *static_cast<uint4*>(to) = first;
  }
}

}  // namespace tilewise::cuda::kernel
