// Tensors of the timed calls.
#include "bench/workload.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace tilewise::bench {
namespace {

constexpr std::size_t kAlignment = 256;

// A well mixed word for every (seed, index).
std::uint64_t mixed(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15U + index;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Bits of `value`, |value| < 1, in a 16-bit type, cut rather than rounded: timing does not care,
// but for subnormals, which fp16 would have below 2^-14 and which are written as zero.
std::uint16_t cut_to_16_bits(tw_dtype dtype, float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (dtype == TW_DTYPE_BF16) return static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude < 0x38800000U) return 0;
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | ((magnitude - 0x38000000U) >> 13));
}

}  // namespace

const char* layout_name(const Shape& shape) { return shape.head_major ? "hnd" : "nhd"; }

const char* dtype_name(tw_dtype dtype) {
  return dtype == TW_DTYPE_BF16 ? "bf16" : dtype == TW_DTYPE_FP16 ? "fp16" : "fp32";
}

std::int64_t dtype_bytes(tw_dtype dtype) { return dtype == TW_DTYPE_FP32 ? 4 : 2; }

void Tensor::Free::operator()(std::byte* data) const { std::free(data); }

Tensor::Tensor(tw_dtype dtype, std::int64_t elements, std::uint64_t seed)
    : element_bytes_(dtype_bytes(dtype)),
      bytes_((static_cast<std::size_t>(elements * element_bytes_) + kAlignment - 1) / kAlignment *
             kAlignment),
      data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes_))) {
  if (data_ == nullptr) throw std::bad_alloc();
  const std::int64_t whole = static_cast<std::int64_t>(bytes_) / element_bytes_;
  for (std::int64_t i = 0; i < whole; ++i) {
    const auto word = static_cast<std::int64_t>(mixed(seed, static_cast<std::uint64_t>(i)) >> 40);
    const float value = static_cast<float>(word - (1 << 23)) * 0x1p-23F;
    if (dtype == TW_DTYPE_FP32) {
      std::memcpy(at(i), &value, sizeof value);
    } else {
      const std::uint16_t bits = cut_to_16_bits(dtype, value);
      std::memcpy(at(i), &bits, sizeof bits);
    }
  }
}

}  // namespace tilewise::bench
