// Launch body of tw_merge_states.
#pragma once

#include "cuda/kernel/any/merge_states.cuh"
#include "cuda/launch/ops.h"
#include "cuda/launch/ops_grid.cuh"

namespace tilewise::cuda {

inline core::Status start_merge_states(const core::MergeStates& p, void* stream) {
  const bool wide = p.v_head_dim % kernel::kGroup == 0 &&
                    is_wide(p.o, p.dtype, {p.o_state_stride, p.o_row_stride, p.o_head_stride}) &&
                    is_wide(p.out, p.out_dtype, {p.out_row_stride, p.out_head_stride});
  const std::int32_t groups = p.v_head_dim / (wide ? kernel::kGroup : 1);
  const std::int32_t team = kernel::team_size(groups, kernel::kWarp);
  return start(wide ? kernel::merge_states<kernel::kGroup> : kernel::merge_states<1>,
               op_grid(p.rows * p.heads, team), stream, kernel::MergeParams{p, team});
}

}  // namespace tilewise::cuda
