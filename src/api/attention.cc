// Entry points of attention: check, plan, run.
#include <cstring>

#include "api/error.h"
#include "api/translate.h"
#include "api/versioned.h"
#include "cpu/backend.h"
#include "cuda/backend.h"
#include "plan/cpu_plan.h"
#include "plan/cuda_plan.h"

namespace tilewise::api {
namespace {

using core::Code;

static_assert(sizeof(core::FaultRecord) == sizeof(tw_status_record));

struct Call {
  tw_attention_args args;
  core::Attention problem;
  Target target;
  // Of the backend that the target names.
  plan::CpuFacts cpu_facts;
  plan::CpuPlan cpu_plan;
  plan::CudaFacts cuda_facts;
  plan::CudaPlan cuda_plan;

  std::uint64_t workspace_bytes() const {
    return target.on_cuda ? cuda_plan.workspace_bytes : cpu_plan.workspace_bytes;
  }
};

Status prepare(const tw_attention_args* args, bool need_pointers, Call* call) {
  TW_TRY(read_struct("args", args, &call->args));
  TW_TRY(read_target(call->args.target, &call->target));
  TW_TRY(translate_attention(call->args, need_pointers, &call->problem));
  if (call->target.on_cuda) {
    call->cuda_facts = cuda::facts(call->target.queue.device);
    return plan::plan_cuda_attention(call->problem, call->cuda_facts, call->args.variant,
                                     &call->cuda_plan);
  }
  call->cpu_facts = cpu::facts(call->target.parallel);
  return plan::plan_cpu_attention(call->problem, call->cpu_facts, call->args.variant,
                                  &call->cpu_plan);
}

Status check_workspace(const Call& call) {
  const std::uint64_t needed = call.workspace_bytes();
  if (needed == 0) return {};
  if (call.args.workspace_bytes < needed) {
    return Status::error(Code::kWorkspaceTooSmall, "workspace_bytes is %llu, wanted at least %llu",
                         static_cast<unsigned long long>(call.args.workspace_bytes),
                         static_cast<unsigned long long>(needed));
  }
  TW_TRY(check_present("workspace", call.args.workspace, "memory"));
  return check_aligned("workspace", call.args.workspace, 256);
}

void run_on_cpu(const Call& call) {
  cpu::record_attention_faults(call.problem,
                               reinterpret_cast<core::FaultRecord*>(call.args.status));
  if (call.cpu_plan.variant == plan::CpuVariant::kReference) {
    cpu::reference_attention(call.problem, call.target.parallel);
  } else {
    cpu::run_attention(call.problem, call.cpu_plan, call.target.parallel, call.args.workspace);
  }
}

Status attention(const tw_attention_args* args) {
  Call call;
  TW_TRY(prepare(args, true, &call));
  TW_TRY(check_workspace(call));
  if (call.problem.total_q == 0 || call.problem.batch == 0) return {};
  if (call.target.on_cuda) {
    const bool dependent_launch = (call.args.flags & TW_PDL) != 0;
    return cuda::run_attention(call.problem, call.cuda_plan, call.target.queue, dependent_launch,
                               call.args.workspace,
                               reinterpret_cast<core::FaultRecord*>(call.args.status));
  }
  run_on_cpu(call);
  return {};
}

Status workspace(const tw_attention_args* args, std::uint64_t* bytes) {
  TW_TRY(check_present("bytes", bytes, "a place for the answer"));
  Call call;
  TW_TRY(prepare(args, false, &call));
  *bytes = call.workspace_bytes();
  return {};
}

Status explain(const tw_attention_args* args, char* text, std::size_t capacity,
               std::size_t* length) {
  if (capacity > 0) TW_TRY(check_present("text", text, "a buffer of `capacity` bytes"));
  Call call;
  TW_TRY(prepare(args, false, &call));
  const std::size_t written = call.target.on_cuda
                                  ? plan::explain_cuda_attention(call.problem, call.cuda_facts,
                                                                 call.cuda_plan, text, capacity)
                                  : plan::explain_cpu_attention(call.problem, call.cpu_facts,
                                                                call.cpu_plan, text, capacity);
  if (length != nullptr) *length = written;
  return {};
}

}  // namespace
}  // namespace tilewise::api

extern "C" {

tw_status tw_attention(const tw_attention_args* args) {
  return tilewise::api::guarded([&] { return tilewise::api::attention(args); });
}

tw_status tw_attention_workspace(const tw_attention_args* args, std::uint64_t* bytes) {
  return tilewise::api::guarded([&] { return tilewise::api::workspace(args, bytes); });
}

tw_status tw_attention_explain(const tw_attention_args* args, char* text, std::size_t capacity,
                               std::size_t* length) {
  return tilewise::api::guarded(
      [&] { return tilewise::api::explain(args, text, capacity, length); });
}

}  // extern "C"
