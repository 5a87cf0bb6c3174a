// Division by multiplication against the machine's own.
#include "core/fast_divide.h"

#include <gtest/gtest.h>

namespace tilewise::core {
namespace {

TEST(FastDivide, IsExactForEveryKindOfDivisor) {
  for (const std::int64_t divisor :
       {1L, 2L, 3L, 5L, 7L, 13L, 16L, 36L, 71L, 127L, 128L, 641L, 65535L, 65537L, 1000003L,
        0x3FFFFFFFL, 0x40000001L, 0x7FFFFFFFL}) {
    const FastDivide by(divisor);
    const auto d = static_cast<std::uint32_t>(divisor);
    const auto check = [&](std::uint32_t n) {
      const std::uint32_t quotient = by.quotient(n);
      ASSERT_EQ(quotient, n / d) << n << " / " << d;
      ASSERT_EQ(by.remainder(n, quotient), n % d) << n << " % " << d;
    };
    for (std::uint32_t n = 0; n < 5000; ++n) check(n);
    for (std::uint32_t step = 0; step < 20000; ++step) {
      const std::uint32_t multiple = (step * 107374u) / d * d;  // both sides of multiples
      check(multiple);
      if (multiple > 0) check(multiple - 1);
    }
    for (std::uint32_t n = 0x7FFFFFFFu; n > 0x7FFFF000u; --n) check(n);
  }
}

}  // namespace
}  // namespace tilewise::core
