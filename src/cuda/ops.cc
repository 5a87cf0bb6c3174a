// The small operations on a device: makes it current and starts the kernel.
#include "cuda/launch/ops.h"
#include "cuda/backend.h"
#include "cuda/guard.h"

namespace tilewise::cuda {

core::Status run_qk_prep(const core::QkPrep&, const Queue&, FaultRecord*) {
  return core::Status::error(
      core::Code::kUnsupported,
      "target.device_kind is TW_DEVICE_CUDA, tw_qk_prep of this version runs "
      "on the CPU only");
}

core::Status run_rope(const core::Rope& p, const Queue& on, FaultRecord* faults) {
  DeviceGuard guard;
  TW_TRY(guard.enter(on.device));
  return launch_rope(p, on.stream, faults);
}

core::Status run_kv_append(const core::KvAppend& p, const Queue& on, FaultRecord* faults) {
  DeviceGuard guard;
  TW_TRY(guard.enter(on.device));
  return launch_kv_append(p, on.stream, faults);
}

core::Status run_merge_states(const core::MergeStates& p, const Queue& on) {
  DeviceGuard guard;
  TW_TRY(guard.enter(on.device));
  return launch_merge_states(p, on.stream);
}

core::Status run_output_gate(const core::OutputGate& p, const Queue& on) {
  DeviceGuard guard;
  TW_TRY(guard.enter(on.device));
  return launch_output_gate(p, on.stream);
}

core::Status run_elementwise(const core::Elementwise& p, const Queue& on) {
  DeviceGuard guard;
  TW_TRY(guard.enter(on.device));
  return launch_elementwise(p, on.stream);
}

}  // namespace tilewise::cuda
