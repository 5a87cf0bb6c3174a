// Entry points of the small operations: check, translate, run.
#include "api/error.h"
#include "api/translate.h"
#include "api/versioned.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace tilewise::api {
namespace {

// The status record of calls that read data which only the device sees.
tw_status_record* status_of(const tw_qk_prep_args& args) { return args.status; }
tw_status_record* status_of(const tw_rope_args& args) { return args.status; }
tw_status_record* status_of(const tw_kv_append_args& args) { return args.status; }
template <class Args>
tw_status_record* status_of(const Args&) {
  return nullptr;
}

// Reads the struct and its target, translates with `translate(args, &problem)`, then runs
// on_cpu(problem, parallel, faults) or on_cuda(problem, queue, faults).
template <class Problem, class Args, class Translate, class OnCpu, class OnCuda>
tw_status call(const Args* args, Translate&& translate, OnCpu&& on_cpu, OnCuda&& on_cuda) {
  return guarded([&]() -> Status {
    Args copy;
    Target target;
    Problem problem;
    TW_TRY(read_struct("args", args, &copy));
    TW_TRY(read_target(copy.target, &target));
    TW_TRY(translate(copy, &problem));
    auto* faults = reinterpret_cast<core::FaultRecord*>(status_of(copy));
    if (target.on_cuda) return on_cuda(problem, target.queue, faults);
    on_cpu(problem, target.parallel, faults);
    return {};
  });
}

// Adapts a backend function that has no faults to report.
template <class Problem, class Where, class Result>
auto without_faults(Result (*run)(const Problem&, const Where&)) {
  return [run](const Problem& p, const Where& on, core::FaultRecord*) { return run(p, on); };
}

template <core::ElementwiseOp kOp>
tw_status elementwise(const tw_elementwise_args* args) {
  return call<core::Elementwise>(
      args,
      [](const tw_elementwise_args& in, core::Elementwise* out) {
        return translate_elementwise(in, kOp, out);
      },
      without_faults(cpu::run_elementwise), without_faults(cuda::run_elementwise));
}

}  // namespace
}  // namespace tilewise::api

using namespace tilewise;  // NOLINT(google-build-using-namespace): entry points only below

extern "C" {

tw_status tw_qk_prep(const tw_qk_prep_args* args) {
  return api::call<core::QkPrep>(args, api::translate_qk_prep, cpu::run_qk_prep, cuda::run_qk_prep);
}

tw_status tw_rope(const tw_rope_args* args) {
  return api::call<core::Rope>(args, api::translate_rope, cpu::run_rope, cuda::run_rope);
}

tw_status tw_kv_append(const tw_kv_append_args* args) {
  return api::call<core::KvAppend>(args, api::translate_kv_append, cpu::run_kv_append,
                                   cuda::run_kv_append);
}

tw_status tw_merge_states(const tw_merge_states_args* args) {
  return api::call<core::MergeStates>(args, api::translate_merge_states,
                                      api::without_faults(cpu::run_merge_states),
                                      api::without_faults(cuda::run_merge_states));
}

tw_status tw_output_gate(const tw_output_gate_args* args) {
  return api::call<core::OutputGate>(args, api::translate_output_gate,
                                     api::without_faults(cpu::run_output_gate),
                                     api::without_faults(cuda::run_output_gate));
}

tw_status tw_softcap(const tw_elementwise_args* args) {
  return api::elementwise<core::ElementwiseOp::kSoftcap>(args);
}

tw_status tw_scale(const tw_elementwise_args* args) {
  return api::elementwise<core::ElementwiseOp::kScale>(args);
}

}  // extern "C"
