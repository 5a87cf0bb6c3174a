// Launch bodies of tw_output_gate, tw_softcap and tw_scale.
#pragma once

#include "cuda/kernel/any/elementwise.cuh"
#include "cuda/launch/ops.h"
#include "cuda/launch/ops_grid.cuh"

namespace tilewise::cuda {

inline core::Status start_output_gate(const core::OutputGate& p, void* stream) {
  const bool wide = p.head_dim % kernel::kGroup == 0 &&
                    is_wide(p.o, p.dtype, {p.o_row_stride, p.o_head_stride}) &&
                    is_wide(p.gate, p.dtype, {p.gate_row_stride, p.gate_head_stride});
  const std::int32_t groups = p.head_dim / (wide ? kernel::kGroup : 1);
  const std::int32_t team = kernel::team_size(std::int64_t{p.heads} * groups);
  return start(wide ? kernel::output_gate<kernel::kGroup> : kernel::output_gate<1>,
               op_grid(p.heads > 0 ? p.rows : 0, team), stream, kernel::GateParams{p, team});
}

inline core::Status start_elementwise(const core::Elementwise& p, void* stream) {
  const bool wide = is_wide(p.x, p.dtype, {});
  return start(wide ? kernel::elementwise<kernel::kGroup> : kernel::elementwise<1>,
               op_grid(core::divide_up(p.n, wide ? kernel::kGroup : 1), 1), stream, p);
}

}  // namespace tilewise::cuda
