// The CUDA backend of a build without it.
#include "cuda/backend.h"

namespace tilewise::cuda {
namespace {

core::Status absent() {
  return core::Status::error(core::Code::kUnsupported,
                             "target.device_kind is TW_DEVICE_CUDA, this build has the CPU only");
}

}  // namespace

bool built() { return false; }
plan::CudaFacts facts(std::int32_t) { return plan::h200_facts(); }
core::Status check_device(std::int32_t) { return absent(); }

core::Status run_attention(const core::Attention&, const plan::CudaPlan&, const Queue&, bool, void*,
                           FaultRecord*) {
  return absent();
}
core::Status run_qk_prep(const core::QkPrep&, const Queue&, FaultRecord*) { return absent(); }
core::Status run_rope(const core::Rope&, const Queue&, FaultRecord*) { return absent(); }
core::Status run_kv_append(const core::KvAppend&, const Queue&, FaultRecord*) { return absent(); }
core::Status run_merge_states(const core::MergeStates&, const Queue&) { return absent(); }
core::Status run_output_gate(const core::OutputGate&, const Queue&) { return absent(); }
core::Status run_elementwise(const core::Elementwise&, const Queue&) { return absent(); }

}  // namespace tilewise::cuda
