// Which rows a block of class P has: slots of the grid to (request, tile of packed rows). Dense: by
// division. Ragged: request r owns the slots from floor(q_indptr[r] * group / rows) + r on, at
// least as many as it has tiles; the rest stay empty. Later tiles come first: under a causal mask
// they are the longest.
#pragma once

#include <cstdint>

#include "core/attention.h"

namespace tilewise::cuda::tile {

struct QTile {
  std::int32_t request;  // below 0: none
  std::int64_t tile;
};

// First slot of request `r` of a ragged call, whatever q_indptr holds.
template <std::int32_t kRows>
__device__ inline std::int64_t first_slot(const core::Attention& a, std::int32_t r) {
  const std::int64_t row = a.q_indptr[r];
  const std::int64_t inside = row < 0 ? 0 : row > a.total_q ? a.total_q : row;
  return inside * a.group() / kRows + r;
}

// `slots`: of a KV head. A hostile q_indptr leaves tiles out; it gives no tile to two slots.
template <std::int32_t kRows>
__device__ inline QTile find_q_tile(const core::Attention& a, std::int64_t slots,
                                    std::uint32_t rank) {
  if (a.q_indptr == nullptr) {
    const auto batch = static_cast<std::uint32_t>(a.batch);
    return {static_cast<std::int32_t>(rank % batch), slots / batch - 1 - rank / batch};
  }
  const std::int64_t slot = slots - 1 - rank;
  std::int32_t low = 0, high = a.batch;
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (first_slot<kRows>(a, middle) <= slot) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const std::int64_t first = first_slot<kRows>(a, low);
  return {first <= slot ? low : -1, slot - first};
}

}  // namespace tilewise::cuda::tile
