// The instruction set that this process uses, decided once from CPUID and TILEWISE_CPU_ISA.
#pragma once

namespace tilewise::cpu {

struct Isa {
  const char* name;  // "scalar", "sse4", "avx2", "avx3" on x86; "neon"
  bool amx_allowed;  // the variable does not forbid tiles; whether they are there is cpu/amx's
                     // matter
  const char* note;  // null, or why TILEWISE_CPU_ISA was ignored
};

// First call: reads the variable and takes the targets above it from Highway's choice, in this
// process. Call it before the first HWY_DYNAMIC_DISPATCH of a unit.
const Isa& isa();

}  // namespace tilewise::cpu
