// Faults in the row pointers of a small operation: all threads of its grid share the requests.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/ops.h"
#include "cuda/kernel/any/teams.cuh"
#include "cuda/tile/request.cuh"

namespace tilewise::cuda::kernel {

// look(request, report) for every request of the call, if somebody wants its faults.
template <class Look>
__device__ inline void check_requests(const core::TokenRows& tokens, core::FaultRecord* faults,
                                      Look&& look) {
  if (faults == nullptr || (tokens.q_indptr == nullptr && tokens.q_len <= 0)) return;
  const tile::Report report{faults};
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t r = grid_thread(); r < tokens.batch; r += threads) {
    const auto request = static_cast<std::int32_t>(r);
    core::request_rows(tokens.q_indptr, tokens.q_len, tokens.total_q, tokens.max_q_len, request,
                       report);
    look(request, report);
  }
}

}  // namespace tilewise::cuda::kernel
