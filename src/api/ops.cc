// Entry points of the small operations: check, translate, run.
#include "api/error.h"
#include "api/translate.h"
#include "api/versioned.h"
#include "cpu/backend.h"

namespace tilewise::api {
namespace {

// Reads the struct and its target, translates with `translate(args, &problem)`, then runs
// `run(problem, parallel, args)`.
template <class Problem, class Args, class Translate, class Run>
tw_status call(const Args* args, Translate&& translate, Run&& run) {
  return guarded([&]() -> Status {
    Args copy;
    cpu::Parallel parallel;
    Problem problem;
    TW_TRY(read_struct("args", args, &copy));
    TW_TRY(read_target(copy.target, &parallel));
    TW_TRY(translate(copy, &problem));
    run(problem, parallel, copy);
    return {};
  });
}

cpu::FaultRecord* faults(tw_status_record* status) {
  return reinterpret_cast<cpu::FaultRecord*>(status);
}

template <core::ElementwiseOp kOp>
tw_status elementwise(const tw_elementwise_args* args) {
  return call<core::Elementwise>(
      args,
      [](const tw_elementwise_args& in, core::Elementwise* out) {
        return translate_elementwise(in, kOp, out);
      },
      [](const core::Elementwise& p, const cpu::Parallel& on, const auto&) {
        cpu::run_elementwise(p, on);
      });
}

}  // namespace
}  // namespace tilewise::api

using namespace tilewise;  // NOLINT(google-build-using-namespace): entry points only below

extern "C" {

tw_status tw_qk_prep(const tw_qk_prep_args* args) {
  return api::call<core::QkPrep>(args, api::translate_qk_prep,
                                 [](const auto& p, const cpu::Parallel& on, const auto& in) {
                                   cpu::run_qk_prep(p, on, api::faults(in.status));
                                 });
}

tw_status tw_rope(const tw_rope_args* args) {
  return api::call<core::Rope>(args, api::translate_rope,
                               [](const auto& p, const cpu::Parallel& on, const auto& in) {
                                 cpu::run_rope(p, on, api::faults(in.status));
                               });
}

tw_status tw_kv_append(const tw_kv_append_args* args) {
  return api::call<core::KvAppend>(args, api::translate_kv_append,
                                   [](const auto& p, const cpu::Parallel& on, const auto& in) {
                                     cpu::run_kv_append(p, on, api::faults(in.status));
                                   });
}

tw_status tw_merge_states(const tw_merge_states_args* args) {
  return api::call<core::MergeStates>(
      args, api::translate_merge_states,
      [](const auto& p, const cpu::Parallel& on, const auto&) { cpu::run_merge_states(p, on); });
}

tw_status tw_output_gate(const tw_output_gate_args* args) {
  return api::call<core::OutputGate>(
      args, api::translate_output_gate,
      [](const auto& p, const cpu::Parallel& on, const auto&) { cpu::run_output_gate(p, on); });
}

tw_status tw_softcap(const tw_elementwise_args* args) {
  return api::elementwise<core::ElementwiseOp::kSoftcap>(args);
}

tw_status tw_scale(const tw_elementwise_args* args) {
  return api::elementwise<core::ElementwiseOp::kScale>(args);
}

}  // extern "C"
