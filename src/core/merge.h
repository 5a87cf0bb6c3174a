// The weights of tw_merge_states: states that carry natural-log LSEs are folded by exp(lse -
// greatest lse). exp itself is each backend's own.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace tilewise::core {

// What the states of one row and head weigh together.
struct StateWeights {
  std::int64_t seen;  // states that are not empty,
  std::int64_t last;  // the last of them
  float top;          // greatest lse
  float sum;          // of exp(lse - top)
};

// `lse(state)`: of the row and head; -inf for a state that saw nothing.
template <class Lse>
TW_DEVICE StateWeights weigh_states(std::int64_t states, Lse&& lse_of) {
  StateWeights w{0, 0, -INFINITY, 0.0f};
  for (std::int64_t s = 0; s < states; ++s) {
    const float lse = lse_of(s);
    if (lse == -INFINITY) continue;
    ++w.seen;
    w.last = s;
    if (!(lse <= w.top)) w.top = lse;  // a NaN becomes and stays the top
  }
  for (std::int64_t s = 0; s < states; ++s) {
    const float lse = lse_of(s);
    if (lse != -INFINITY) w.sum += expf(lse - w.top);
  }
  return w;
}

// What the weighted sum is multiplied by: 1 / sum, with the sink in the sum; 0 if nothing was seen.
TW_DEVICE inline float merge_factor(const StateWeights& w, float sink) {
  if (w.seen == 0) return 0.0f;
  if (!(sink > w.top)) return 1.0f / (w.sum + expf(sink - w.top));
  const float scale = expf(w.top - sink);
  return scale / (w.sum * scale + 1.0f);
}

// The LSE of all states; a single one keeps its own.
TW_DEVICE inline float merged_lse(const StateWeights& w) {
  if (w.seen == 0) return -INFINITY;
  if (w.seen == 1) return w.top;
  return static_cast<float>(static_cast<double>(w.top) + log(static_cast<double>(w.sum)));
}

}  // namespace tilewise::core
