// What the CPU backend offers to api/. Calls are checked before they come here and cannot fail;
// faults in the arrays' contents go to `faults`, which may be null.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/ops.h"
#include "cpu/parallel.h"
#include "plan/cpu_plan.h"

namespace tilewise::cpu {

// Facts of this machine for a call on `parallel`. TILEWISE_CPU_ISA (read once) may lower them.
plan::CpuFacts facts(const Parallel& parallel);

using core::FaultRecord;

// Keeps the first fault of a record that was clear.
class FaultRecorder {
 public:
  explicit FaultRecorder(FaultRecord* record) : record_(record) {}
  void operator()(const core::Fault& fault) const {
    if (record_ == nullptr || record_->code != 0) return;
    *record_ = {static_cast<std::int32_t>(fault.code), static_cast<std::int32_t>(fault.what),
                fault.request, fault.row, fault.value};
  }

 private:
  FaultRecord* record_;
};

// Reads every array of the call once, on the calling thread, so that the recorded fault is the same
// for any number of threads; kernels then clamp the same values in silence.
void record_attention_faults(const core::Attention& a, FaultRecord* faults);

// `workspace` holds plan.workspace_bytes. Appends first, then attends.
void run_attention(const core::Attention& a, const plan::CpuPlan& plan, const Parallel& parallel,
                   void* workspace);

// The float64 oracle of the same call, variant kReference; appends too.
void reference_attention(const core::Attention& a, const Parallel& parallel);

// Writes the rows of an append to their slots, converting to the cache's type. Both of the above
// use it.
void append_new_rows(const core::Attention& a, const Parallel& parallel);

void run_qk_prep(const core::QkPrep& p, const Parallel& parallel, FaultRecord* faults);
void run_rope(const core::Rope& p, const Parallel& parallel, FaultRecord* faults);
void run_kv_append(const core::KvAppend& p, const Parallel& parallel, FaultRecord* faults);
void run_merge_states(const core::MergeStates& p, const Parallel& parallel);
void run_output_gate(const core::OutputGate& p, const Parallel& parallel);
void run_elementwise(const core::Elementwise& p, const Parallel& parallel);

// float64 oracles of the small operations, serial; they round to the element type only where the
// contract says so.
void reference_qk_prep(const core::QkPrep& p);
void reference_rope(const core::Rope& p);
void reference_merge_states(const core::MergeStates& p);
void reference_output_gate(const core::OutputGate& p);
void reference_elementwise(const core::Elementwise& p);

}  // namespace tilewise::cpu
