// Division by a number that is fixed for a call: a multiplication and a shift on the device.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tilewise::core {

// Exact for 0 <= n < 2^31 and 1 <= divisor < 2^31: with s = ceil(log2(divisor)) the multiplier
// ceil(2^(31+s) / divisor) exceeds the true ratio by less than 2^-31 of it, and n * multiplier /
// 2^(31+s) is the upper half of 2n * multiplier, shifted by s.
class FastDivide {
 public:
  FastDivide() = default;
  explicit FastDivide(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    while ((std::int64_t{1} << shift_) < divisor) ++shift_;
    const auto d = static_cast<std::uint64_t>(divisor);
    multiplier_ = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + shift_)) + d - 1) / d);
  }

  TW_DEVICE std::uint32_t divisor() const { return divisor_; }
  TW_DEVICE std::uint32_t quotient(std::uint32_t n) const {
    return static_cast<std::uint32_t>((std::uint64_t{2 * n} * multiplier_) >> 32) >> shift_;
  }
  TW_DEVICE std::uint32_t remainder(std::uint32_t n, std::uint32_t quotient) const {
    return n - quotient * divisor_;
  }

 private:
  std::uint32_t divisor_ = 1, multiplier_ = 1u << 31, shift_ = 0;
};

}  // namespace tilewise::core
