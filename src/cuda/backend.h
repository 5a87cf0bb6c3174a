// What the CUDA backend offers to api/. Calls are checked before they come here; nothing
// synchronises or allocates. In a build without CUDA absent.cc stands in its place.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/ops.h"
#include "core/status.h"
#include "plan/cuda_plan.h"

namespace tilewise::cuda {

// Where a call runs.
struct Queue {
  std::int32_t device;
  void* stream;
};

using core::FaultRecord;  // in device memory here

// Whether the library was built with this backend.
bool built();

// Facts of device `index`; `present` is false where there is none. Makes no context.
plan::CudaFacts facts(std::int32_t index);

// An error that names device `index` unless the library can run there.
core::Status check_device(std::int32_t index);

core::Status run_attention(const core::Attention& a, const plan::CudaPlan& plan, const Queue& on,
                           bool dependent_launch, void* workspace, FaultRecord* faults);
core::Status run_qk_prep(const core::QkPrep& p, const Queue& on, FaultRecord* faults);
core::Status run_rope(const core::Rope& p, const Queue& on, FaultRecord* faults);
core::Status run_kv_append(const core::KvAppend& p, const Queue& on, FaultRecord* faults);
core::Status run_merge_states(const core::MergeStates& p, const Queue& on);
core::Status run_output_gate(const core::OutputGate& p, const Queue& on);
core::Status run_elementwise(const core::Elementwise& p, const Queue& on);

}  // namespace tilewise::cuda
