// tw_rope, any types and dims.
#include "cuda/launch/ops_rope.cuh"

namespace tilewise::cuda {
core::Status launch_rope(const core::Rope& p, void* stream, core::FaultRecord* faults) {
  return start_rope(p, stream, faults);
}
}  // namespace tilewise::cuda
