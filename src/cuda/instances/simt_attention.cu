// Attention in plain arithmetic, both classes, any types and dims.
#include "cuda/launch/simt.cuh"

namespace tilewise::cuda {
core::Status launch_simt_decode(const AttentionLaunch& launch) { return start_simt_decode(launch); }
core::Status launch_simt_prefill(const AttentionLaunch& launch) {
  return start_simt_prefill(launch);
}
}  // namespace tilewise::cuda
