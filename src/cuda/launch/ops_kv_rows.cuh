// Launch bodies of tw_kv_append and of the conversion of appended rows.
#pragma once

#include "core/append_rows.h"
#include "cuda/kernel/any/kv_rows.cuh"
#include "cuda/launch/launch.h"
#include "cuda/launch/ops.h"
#include "cuda/launch/ops_grid.cuh"

namespace tilewise::cuda {

// A team for a row of K or of V, one after the other.
inline std::int32_t team_of_rows(std::int32_t kv_heads, std::int32_t head_dim,
                                 std::int32_t v_head_dim) {
  const std::int32_t dim = head_dim > v_head_dim ? head_dim : v_head_dim;
  return kernel::team_size(std::int64_t{kv_heads} * (dim / kernel::kGroup));
}

inline core::Status start_kv_append(const core::KvAppend& p, void* stream,
                                    core::FaultRecord* faults) {
  const std::int32_t team = team_of_rows(p.kv_heads, p.head_dim, p.v_head_dim);
  return start(kernel::kv_append, token_grid(core::rows_of(p), faults, team), stream,
               kernel::KvAppendParams{p, faults, team});
}

inline core::Status start_convert_append(const ConvertLaunch& launch) {
  const core::Attention& a = launch.a;
  const core::TokenRows tokens{a.batch, a.q_len, a.total_q, a.max_q_len, a.q_indptr};
  const std::int32_t team = team_of_rows(a.kv_heads, a.head_dim, a.v_head_dim);
  const std::int64_t k_elements = a.total_q * a.kv_heads * a.head_dim;
  const kernel::ConvertParams params{
      tokens,
      a.append,
      a.kv_dtype,
      launch.to,
      static_cast<char*>(launch.to) + k_elements * core::size_of(a.kv_dtype),
      a.kv_heads,
      a.head_dim,
      a.v_head_dim,
      team};
  Grid grid = token_grid(tokens, nullptr, team);
  grid.dependent_launch = launch.dependent_launch;
  return start(kernel::convert_rows, grid, launch.stream, params);
}

}  // namespace tilewise::cuda
