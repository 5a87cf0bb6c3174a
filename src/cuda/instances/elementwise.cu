// tw_output_gate, tw_softcap and tw_scale, any types and dims.
#include "cuda/launch/ops_elementwise.cuh"

namespace tilewise::cuda {
core::Status launch_output_gate(const core::OutputGate& p, void* stream) {
  return start_output_gate(p, stream);
}
core::Status launch_elementwise(const core::Elementwise& p, void* stream) {
  return start_elementwise(p, stream);
}
}  // namespace tilewise::cuda
