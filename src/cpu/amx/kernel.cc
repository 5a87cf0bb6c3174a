// The one unit that is compiled with the AMX and AVX-512 flags of cmake/flags.cmake. It defines
// what kernel.h declares and nothing weak, so that no shared inline function carries these
// instructions to other CPUs (tests/abi/no_weak_symbols.sh looks).
#include "cpu/amx/kernel.h"

#if defined(__AMX_BF16__)
#include "cpu/amx/body.h"
#include "cpu/amx/tile_ops.h"
#endif

namespace tilewise::cpu::amx {

#if defined(__AMX_BF16__)
const Kernel kHardwareKernel = kernel_of<HardwareTiles>();
#else
const Kernel kHardwareKernel{};  // amx_available() is false: never called
#endif

}  // namespace tilewise::cpu::amx
