// Partial results of class D rows over chunks, and their fold: ascending, in float32, by one
// formula whoever computed them (core/fold.h). Part of the bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/fold.h"
#include "cpu/tiles.h"

namespace tilewise::cpu {

// A row's running fold; output is v_head_dim floats.
struct FoldedRow {
  float* maximum;
  float* sum;
  float* output;
};

inline void clear_fold(const FoldedRow& to, std::int64_t v_dim) {
  *to.maximum = -INFINITY;
  *to.sum = 0.0f;
  std::memset(to.output, 0, static_cast<std::size_t>(v_dim) * sizeof(float));
}

// Takes the next chunk's result in. A chunk that the row saw nothing of changes nothing, and its
// output is not read.
inline void fold_in(const RowState& chunk, std::int64_t v_dim, const FoldedRow& to) {
  if (chunk.maximum == -INFINITY) return;
  const core::FoldStep step = core::fold_step(*to.maximum, chunk.maximum);
  for (std::int64_t d = 0; d < v_dim; ++d) {
    to.output[d] = to.output[d] * step.keep + chunk.output[d] * step.take;
  }
  *to.sum = *to.sum * step.keep + chunk.sum * step.take;
  *to.maximum = step.top;
}

// A partial in the workspace: maximum, sum, then the output.
inline void save_partial(const RowState& state, std::int64_t v_dim, float* slot) {
  slot[0] = state.maximum;
  slot[1] = state.sum;
  if (state.maximum == -INFINITY) return;
  std::memcpy(slot + 2, state.output, static_cast<std::size_t>(v_dim) * sizeof(float));
}

inline RowState load_partial(const float* slot) { return {slot[0], slot[1], slot + 2}; }

}  // namespace tilewise::cpu
