// Whether this process may use AMX: the CPU has the instructions, the system saves their state, and
// the kernel granted it. Compiled without the unit's own flags.
#include "cpu/amx/prefill.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>

namespace tilewise::cpu {
namespace {

#if defined(__x86_64__) && defined(__linux__)

constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // XFEATURE_XTILEDATA

struct Registers {
  std::uint32_t a, b, c, d;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r{0, 0, 0, 0};
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {0, 0, 0, 0};
  return r;
}

bool has_bits(std::uint64_t value, std::uint64_t bits) { return (value & bits) == bits; }

constexpr std::uint64_t bit(int n) { return std::uint64_t{1} << n; }

// What cmake/flags.cmake lets the unit's compiler use.
bool cpu_has_instructions() {
  const Registers basic = cpuid(1, 0);
  if (!has_bits(basic.c, bit(12) | bit(27))) return false;  // FMA, OSXSAVE
  const Registers extended = cpuid(7, 0);
  const bool avx512 =
      has_bits(extended.b, bit(16) | bit(17) | bit(30) | bit(31)) &&  // F, DQ, BW, VL
      has_bits(extended.c, bit(1)) &&                                 // VBMI
      has_bits(cpuid(7, 1).a, bit(5));                                // BF16
  return avx512 && has_bits(extended.d, bit(22) | bit(24));           // AMX-BF16, AMX-TILE
}

bool system_saves_state() {
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  // SSE, AVX, the three parts of AVX-512, tile configuration and tile data.
  return has_bits(low, bit(1) | bit(2) | bit(5) | bit(6) | bit(7) | bit(17) | bit(18));
}

bool decide() {
  return cpu_has_instructions() && system_saves_state() &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool decide() { return false; }

#endif

}  // namespace

bool amx_available() {
  static const bool available = decide();
  return available;
}

}  // namespace tilewise::cpu
