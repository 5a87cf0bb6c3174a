// Launch body of tw_rope.
#pragma once

#include "cuda/kernel/any/rope.cuh"
#include "cuda/launch/ops.h"
#include "cuda/launch/ops_grid.cuh"

namespace tilewise::cuda {

inline bool has_wide_table(const core::RopeTable& table) {
  return table.cos_element_stride == 1 && table.sin_element_stride == 1 &&
         is_wide(table.cos, table.dtype, {table.cos_row_stride}) &&
         is_wide(table.sin, table.dtype, {table.sin_row_stride});
}

// Whether heads are made of whole groups of pairs at aligned addresses.
inline bool has_wide_pairs(const core::Rope& p) {
  const core::RowStrides& x = p.x.stride;
  const core::RowStrides& out = p.out.stride;
  return p.rope.rotary_dim % (2 * kernel::kGroup) == 0 &&
         is_wide(p.x.data, p.dtype, {x.batch, x.token, x.head}) &&
         is_wide(p.out.data, p.dtype, {out.batch, out.token, out.head});
}

inline core::Status start_rope(const core::Rope& p, void* stream, core::FaultRecord* faults) {
  if (p.heads <= 0) return {};  // no array whose extent bounds the number of rows
  const bool wide = has_wide_pairs(p);
  const std::int32_t groups = (p.head_dim - p.rope.rotary_dim / 2) / (wide ? kernel::kGroup : 1);
  const std::int32_t team = kernel::team_size(std::int64_t{p.heads} * groups);
  const kernel::RopeParams params{p, faults, team, has_wide_table(p.rope)};
  return start(wide ? kernel::rope<kernel::kGroup> : kernel::rope<1>,
               token_grid(p.tokens, faults, team), stream, params);
}

}  // namespace tilewise::cuda
