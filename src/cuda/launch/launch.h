// The host side of kernels: what a launch needs, and one function for each kernel of the manifest.
// Plain C++; the bodies of the templates are in .cuh files that only instances/ includes.
#pragma once

#include "core/status.h"
#include "core/variant.h"
#include "cuda/tile/params.h"

namespace tilewise::cuda {

struct AttentionLaunch {
  tile::AttentionParams params;
  const plan::CudaPlan* plan;
  void* stream;           // cudaStream_t
  bool dependent_launch;  // may start before the grid in front of it has ended
};

template <class V>
core::Status launch_decode(const AttentionLaunch& launch);
template <class V>
core::Status launch_prefill(const AttentionLaunch& launch);

core::Status launch_simt_decode(const AttentionLaunch& launch);
core::Status launch_simt_prefill(const AttentionLaunch& launch);

// Folds the partial results that a class D kernel left in the workspace.
core::Status launch_combine(const AttentionLaunch& launch);

// Converts appended rows to the cache's type: K rows to `to`, V rows behind them, both
// [row][kv_head][element].
struct ConvertLaunch {
  core::Attention a;
  void* to;
  void* stream;
  bool dependent_launch;
};
core::Status launch_convert_append(const ConvertLaunch& launch);

}  // namespace tilewise::cuda
