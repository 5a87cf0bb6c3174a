// The running fold of class D on the device: the arithmetic of core/fold.h, fused where it pays,
// the same wherever a chunk enters.
#pragma once

#include <cmath>

#include "core/fold.h"

namespace tilewise::cuda::tile {

// Maximum and sum of one packed row over some keys.
struct RowStats {
  float maximum, sum;
};

// A running fold takes the next chunk in. A chunk that saw nothing changes nothing: it takes 0,
// keeps 1, and its values are zeros.
struct FoldFactors {
  float keep, take;
};

__device__ inline FoldFactors fold_in(RowStats& run, const RowStats& chunk) {
  if (chunk.maximum == -INFINITY) return {1.0f, 0.0f};
  const core::FoldStep step = core::fold_step(run.maximum, chunk.maximum);
  run = {step.top, fmaf(chunk.sum, step.take, run.sum * step.keep)};
  return {step.keep, step.take};
}

__device__ inline float fold_value(float run, float value, const FoldFactors& factors) {
  return fmaf(value, factors.take, run * factors.keep);
}

}  // namespace tilewise::cuda::tile
