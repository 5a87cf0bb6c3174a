// TILEWISE_CPU_ISA = sse4 | avx2 | avx3 | amx limits the instruction set, for tests and bug
// reports. `amx` is everything there is, the default; any other name forbids AMX tiles.
#include "cpu/isa.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "cpu/amx/prefill.h"
#include "cpu/backend.h"
#include "cpu/simd/targets.h"
#include "hwy/targets.h"

namespace tilewise::cpu {
namespace {

struct Name {
  const char* name;
  std::int64_t target;
};

#if HWY_ARCH_X86
// Ascending. A machine below SSE4 runs one lane at a time: slow and correct.
constexpr Name kNames[] = {
    {"scalar", HWY_SCALAR}, {"sse4", HWY_SSE4}, {"avx2", HWY_AVX2}, {"avx3", HWY_AVX3}};
#elif HWY_ARCH_ARM_A64
constexpr Name kNames[] = {{"scalar", HWY_SCALAR}, {"neon", HWY_NEON}};
#else
constexpr Name kNames[] = {{"scalar", HWY_SCALAR}};
#endif

// Highway's targets get better towards lower bits: those better than `target`.
std::int64_t better_than(std::int64_t target) { return target - 1; }

const Name* best_supported() {
  const Name* best = &kNames[0];
  for (const Name& candidate : kNames) {
    if ((hwy::SupportedTargets() & candidate.target) != 0) best = &candidate;
  }
  return best;
}

Isa decide() {
  const Name* best = best_supported();
  const char* wanted = std::getenv("TILEWISE_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "amx") == 0) {
    return {best->name, true, nullptr};
  }
  for (const Name& candidate : kNames) {
    if (std::strcmp(wanted, candidate.name) != 0) continue;
    const bool there =
        candidate.target == HWY_SCALAR || (hwy::SupportedTargets() & candidate.target) != 0;
    if (!there) return {best->name, true, "TILEWISE_CPU_ISA ignored: not on this machine"};
    hwy::DisableTargets(better_than(candidate.target));
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    return {candidate.name, false, nullptr};
  }
  return {best->name, true, "TILEWISE_CPU_ISA ignored: unknown name"};
}

}  // namespace

const Isa& isa() {
  static const Isa decided = decide();
  return decided;
}

plan::CpuFacts facts(const Parallel& parallel) {
  return {parallel.workers, isa().amx_allowed && amx_available(), isa().name};
}

}  // namespace tilewise::cpu
