// Which backend this process checks, and the variants that it has. The oracle is the CPU's in any
// case, so one process checks one backend.
#pragma once

#include "verify/case.h"

namespace tilewise::verify {

enum class Backend { kCpu, kCuda };

// The CPU unless use_backend() said otherwise; not to be changed while calls run.
Backend backend();
void use_backend(Backend chosen);
inline bool on_cuda() { return backend() == Backend::kCuda; }

// Whether the library was built with CUDA and this machine has a device; if not, the reason.
bool cuda_usable();
const char* why_no_cuda();

// The float64 reference: on the CPU whatever the backend.
constexpr int kReference = 1;

// Numbers that tw_attention_args.variant takes on the CPU.
enum CpuVariant : int { kSimdSelf = 2, kSimdSplit = 3, kAmxSelf = 4, kAmxSplit = 5 };

// And on CUDA, where 2 and 3 serve the same types and dims as on the CPU.
enum CudaVariant : int {
  kSimtSelf = 2,
  kSimtSplit = 3,
  kMmaSelf = 4,
  kMmaCluster = 5,
  kMmaSplit = 6
};

struct VariantInfo {
  int number;
  const char* name;
  int twin;  // variant whose bytes must be the same; 0: none before it
  bool keeps_float_weights;
  bool required;  // present on every machine
};

// Of the backend in use, without the reference.
const std::vector<VariantInfo>& variants();

}  // namespace tilewise::verify
