// What every attention kernel is given: the call and the launch's choices. Passed by value.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/fast_divide.h"
#include "core/fault.h"
#include "core/tile_shapes.h"
#include "plan/cuda_plan.h"

namespace tilewise::cuda::tile {

struct AttentionParams {
  core::Attention a;  // appended rows are of the cache's type: a pass before has converted them
  core::FaultRecord* faults;
  float scale_log2;                   // scale * log2(e)
  core::FastDivide group, page_size;  // heads that share a KV head; 1 where nothing is paged
  // Class D; see plan/cuda_plan.h.
  plan::CudaSharing sharing;
  std::int32_t parts, stages;
  core::FastDivide by_parts, by_kv_heads, by_row_blocks;
  core::DecodeShared shared;
  bool balances;  // parts of a row follow the mean length of the batch too
  std::int64_t keys_of_part, row_blocks, request_rows, max_chunks;
  std::int64_t fair_shares;  // that the keys of a batch are divided into
  float* partials;
  std::int32_t* chunk_counts;  // [batch]: chunks that the folding kernel has to fold
  // Class P.
  std::int64_t prefill_blocks;
};

}  // namespace tilewise::cuda::tile
