// One attention call on a device: converts appended rows if it must, then starts the kernels of the
// row classes that may occur.
#include <algorithm>

#include "core/rows.h"
#include "core/tile_shapes.h"
#include "cuda/backend.h"
#include "cuda/dispatch.h"
#include "cuda/guard.h"
#include "cuda/launch/launch.h"

namespace tilewise::cuda {
namespace {

constexpr float kLog2e = 1.44269504088896340736f;
constexpr std::int64_t kMostKeys = INT32_MAX - 127;
// Batches of more rows share blocks by length alone: every block reads all lengths.
constexpr std::int32_t kMostBalanced = 1024;

tile::AttentionParams make_params(const core::Attention& a, const plan::CudaPlan& plan,
                                  void* workspace, core::FaultRecord* faults) {
  tile::AttentionParams p{};
  p.a = a;
  // A tile past the last key has a number below 2^31 too. Longer requests do not fit any memory.
  p.a.kv.max_kv_len = a.kv.max_kv_len < kMostKeys ? a.kv.max_kv_len : kMostKeys;
  p.faults = faults;
  p.scale_log2 = a.scale * kLog2e;
  p.group = core::FastDivide(a.group());
  p.page_size = core::FastDivide(a.kv.layout == core::KvLayout::kPaged ? a.kv.page_size : 1);
  p.by_parts = core::FastDivide(std::max(plan.parts, 1));
  p.by_kv_heads = core::FastDivide(a.kv_heads);
  p.by_row_blocks = core::FastDivide(std::max<std::int64_t>(plan.row_blocks, 1));
  p.sharing = plan.sharing;
  p.shared = core::decode_shared(plan.dim, plan.tile_rows, plan.stages, 0);
  p.parts = plan.parts;
  p.stages = plan.stages;
  p.balances = plan.sharing == plan::CudaSharing::kSplit && a.batch > 1 && a.batch <= kMostBalanced;
  p.keys_of_part = plan.keys_of_part;
  p.fair_shares = plan.fair_shares;
  p.row_blocks = plan.row_blocks;
  p.request_rows = plan.request_rows;
  p.max_chunks = plan.max_chunks;
  p.prefill_blocks = plan.prefill_blocks;
  char* base = static_cast<char*>(workspace);
  p.partials = reinterpret_cast<float*>(base + plan.partials_offset);
  p.chunk_counts = reinterpret_cast<std::int32_t*>(base + plan.counts_offset);
  return p;
}

// From here on the appended rows are their converted copies.
core::Status convert_append(const plan::CudaPlan& plan, const Queue& on, bool dependent_launch,
                            void* workspace, core::Attention* a) {
  char* to = static_cast<char*>(workspace) + plan.converted_offset;
  TW_TRY(launch_convert_append({*a, to, on.stream, dependent_launch}));
  const std::int64_t k_row = std::int64_t{a->kv_heads} * a->head_dim;
  const std::int64_t v_row = std::int64_t{a->kv_heads} * a->v_head_dim;
  a->append.dtype = a->kv_dtype;
  a->append.k = to;
  a->append.v = to + a->total_q * k_row * core::size_of(a->kv_dtype);
  a->append.k_stride = {a->q_len * k_row, k_row, a->head_dim};
  a->append.v_stride = {a->q_len * v_row, v_row, a->v_head_dim};
  return {};
}

// The tensor-core instance of a body if the plan says so, else `simt`.
core::Status launch_body(Body body, LaunchFunction simt, const AttentionLaunch& launch) {
  if (!launch.plan->mma) return simt(launch);
  const LaunchFunction mma = find_launch(body, launch.params.a.q_dtype, launch.plan->dim);
  if (mma != nullptr) return mma(launch);
  return core::unsupported("head_dim", launch.params.a.head_dim, "what the manifest names");
}

}  // namespace

core::Status run_attention(const core::Attention& call, const plan::CudaPlan& plan, const Queue& on,
                           bool dependent_launch, void* workspace, core::FaultRecord* faults) {
  DeviceGuard guard;
  TW_TRY(guard.enter(on.device));
  core::Attention a = call;
  if (plan.converts) {
    TW_TRY(convert_append(plan, on, dependent_launch, workspace, &a));
    dependent_launch = true;  // on our own kernel, which every kernel below waits for
  }
  AttentionLaunch launch{make_params(a, plan, workspace, faults), &plan, on.stream,
                         dependent_launch};
  if (plan.decode) {
    TW_TRY(launch_body(Body::kDecode, launch_simt_decode, launch));
    if (plan.sharing == plan::CudaSharing::kSplit) TW_TRY(launch_combine(launch));
    // The next kernel would wait for the last one only, not for those before it.
    launch.dependent_launch = false;
  }
  if (!plan.prefill) return {};
  return launch_body(Body::kPrefill, launch_simt_prefill, launch);
}

}  // namespace tilewise::cuda
