// Whether bf16 tiles can be used. A unit of its own, compiled for any processor of the family, so
// that the question itself is safe to ask.
#include "bench/peak_kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tilewise::bench {
namespace {

constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;               // XFEATURE_XTILEDATA

bool processor_has_tiles() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  return (d & kAmxBf16) != 0 && (d & kAmxTile) != 0;
}

}  // namespace

bool amx_usable() {
  static const bool usable =
      processor_has_tiles() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return usable;
}

}  // namespace tilewise::bench
#else
namespace tilewise::bench {

bool amx_usable() { return false; }

}  // namespace tilewise::bench
#endif
