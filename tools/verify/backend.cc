// The backend in use.
#include "verify/backend.h"

#include "common/device.h"

namespace tilewise::verify {
namespace {

Backend& chosen_backend() {
  static Backend chosen = Backend::kCpu;
  return chosen;
}

}  // namespace

Backend backend() { return chosen_backend(); }

void use_backend(Backend chosen) { chosen_backend() = chosen; }

const char* why_no_cuda() {
  if (tw_supports(TW_DEVICE_CUDA, TW_DTYPE_BF16, TW_DTYPE_BF16, 64, 64) != 1)
    return "this build has no CUDA backend";
  return tools::device_usable() ? nullptr : "this machine has no CUDA device or no driver for it";
}

bool cuda_usable() { return why_no_cuda() == nullptr; }

const std::vector<VariantInfo>& variants() {
  static const std::vector<VariantInfo> cpu = {{kSimdSelf, "simd self", 0, true, true},
                                               {kSimdSplit, "simd split", kSimdSelf, true, true},
                                               {kAmxSelf, "amx self", 0, false, false},
                                               {kAmxSplit, "amx split", kAmxSelf, false, false}};
  static const std::vector<VariantInfo> cuda = {
      {kSimtSelf, "simt self", 0, true, true},
      {kSimtSplit, "simt split", kSimtSelf, true, false},
      {kMmaSelf, "mma self", 0, false, false},
      {kMmaCluster, "mma cluster", kMmaSelf, false, false},
      {kMmaSplit, "mma split", kMmaSelf, false, false}};
  return on_cuda() ? cuda : cpu;
}

}  // namespace tilewise::verify
