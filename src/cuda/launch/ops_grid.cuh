// Grids of the small operations, and whether their rows can be read 128 bits at a time: a choice
// for the whole call.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "core/ops.h"
#include "core/rows.h"
#include "cuda/kernel/any/elements.cuh"
#include "cuda/kernel/any/teams.cuh"
#include "cuda/launch/runtime.cuh"

namespace tilewise::cuda {

// One team for each of `rows`.
inline Grid op_grid(std::int64_t rows, std::int32_t team) {
  return {core::divide_up(rows, kernel::kOpThreads / team), kernel::kOpThreads, 0, 1, false};
}

// The same for rows of requests whose row pointers are checked: also if there are no rows.
inline Grid token_grid(const core::TokenRows& tokens, const core::FaultRecord* faults,
                       std::int32_t team) {
  Grid grid = op_grid(tokens.batch > 0 ? tokens.total_q : 0, team);
  const bool checks = faults != nullptr && tokens.q_indptr != nullptr && tokens.batch > 0;
  if (checks && grid.blocks == 0) grid.blocks = 1;
  return grid;
}

// Whether groups of elements can be read at `data` plus any sums of `strides`.
inline bool is_wide(const void* data, core::DType type,
                    std::initializer_list<std::int64_t> strides) {
  constexpr std::int64_t kBytes = 16;
  if (reinterpret_cast<std::uintptr_t>(data) % kBytes != 0) return false;
  for (const std::int64_t stride : strides) {
    if (stride * core::size_of(type) % kBytes != 0) return false;
  }
  return true;
}

}  // namespace tilewise::cuda
