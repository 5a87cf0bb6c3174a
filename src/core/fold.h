// The fold: how partial results over disjoint chunks become one, in ascending order, in fp32.
// Weights come from the partials' maxima (log2 units); a chunk that saw nothing has maximum -inf
// and weight 0. Part of the bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace tilewise::core {

// exp2 of a difference of maxima, with -inf as "saw nothing": max_all is finite whenever max_chunk
// is.
TW_DEVICE inline float fold_weight(float max_chunk, float max_all) {
  return max_chunk == -INFINITY ? 0.0f : exp2f(max_chunk - max_all);
}

// What happens to a running fold when the next chunk enters: its values are multiplied by `keep`,
// the chunk's by `take`. A chunk that saw nothing must not enter: its output is not read.
struct FoldStep {
  float top, keep, take;
};

TW_DEVICE inline FoldStep fold_step(float before, float chunk) {
  const float top = !(chunk <= before) ? chunk : before;  // a NaN wins
  return {top, fold_weight(before, top), fold_weight(chunk, top)};
}

// Natural-log LSE of a row from its maximum (log2 units) and its sum of exp2(x - max); -inf for an
// empty row.
TW_DEVICE inline float natural_lse(float max_log2, float sum) {
  if (sum == 0.0f) return -INFINITY;  // a NaN stays one
  constexpr double kLn2 = 0.693147180559945309417232121458;
  return static_cast<float>(static_cast<double>(max_log2) * kLn2 + log(static_cast<double>(sum)));
}

// What a row's sum becomes when its sink (natural units, unscaled, uncapped) enters once, at the
// end. A row with a sink and no visible key keeps output 0.
struct SinkResult {
  float scale;  // multiplies the row's accumulated output before division by `sum`
  float sum;
};

TW_DEVICE inline SinkResult enter_sink(float max_log2, float sum, float sink) {
  constexpr float kLog2e = 1.44269504088896340736f;
  const float sink_log2 = sink * kLog2e;
  const float top = max_log2 > sink_log2 ? max_log2 : sink_log2;
  if (max_log2 == -INFINITY) return {0.0f, 1.0f};
  const float scale = exp2f(max_log2 - top);
  return {scale, fmaf(sum, scale, exp2f(sink_log2 - top))};
}

}  // namespace tilewise::core
