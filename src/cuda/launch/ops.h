// The small operations' kernels, one function each, on the device that is current. Plain C++.
#pragma once

#include "core/fault.h"
#include "core/ops.h"
#include "core/status.h"

namespace tilewise::cuda {

core::Status launch_rope(const core::Rope& p, void* stream, core::FaultRecord* faults);
core::Status launch_kv_append(const core::KvAppend& p, void* stream, core::FaultRecord* faults);
core::Status launch_merge_states(const core::MergeStates& p, void* stream);
core::Status launch_output_gate(const core::OutputGate& p, void* stream);
core::Status launch_elementwise(const core::Elementwise& p, void* stream);

}  // namespace tilewise::cuda
