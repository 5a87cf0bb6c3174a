// Launch bodies of the SIMT kernels: any element types and head dims, at run time.
#pragma once

#include "core/tile_shapes.h"
#include "cuda/kernel/simt/decode.cuh"
#include "cuda/kernel/simt/prefill.cuh"
#include "cuda/launch/launch.h"
#include "cuda/launch/runtime.cuh"

namespace tilewise::cuda {

struct SimtDecodeKernel;  // names of kernels
struct SimtPrefillKernel;

// `blocks` of a KV head.
template <class Tag, class Kernel>
core::Status start_simt(Kernel kernel, const AttentionLaunch& launch, std::int64_t blocks,
                        const core::SimtShared& shared) {
  TW_TRY(prepare_kernel<Tag>(kernel, false));
  return start(kernel,
               {blocks * launch.params.a.kv_heads, core::kSimtThreads, shared.bytes, 1,
                launch.dependent_launch},
               launch.stream, launch.params);
}

inline core::Status start_simt_decode(const AttentionLaunch& launch) {
  const core::Attention& a = launch.params.a;
  const plan::CudaPlan& plan = *launch.plan;
  return start_simt<SimtDecodeKernel>(kernel::simt_decode, launch,
                                      a.batch * plan.row_blocks * plan.parts,
                                      core::simt_shared(a.head_dim, a.v_head_dim, true));
}

inline core::Status start_simt_prefill(const AttentionLaunch& launch) {
  const core::Attention& a = launch.params.a;
  return start_simt<SimtPrefillKernel>(kernel::simt_prefill, launch, launch.plan->prefill_blocks,
                                       core::simt_shared(a.head_dim, a.v_head_dim, false));
}

}  // namespace tilewise::cuda
