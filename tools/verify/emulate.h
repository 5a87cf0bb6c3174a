// A second, independent computation of a problem's answer in float32, with inputs and weights
// rounded to their element types: what a careful kernel can reach. Tolerances come from its error,
// and it checks the oracle in passing.
#pragma once

#include "verify/problem.h"

namespace tilewise::verify {

struct Emulation {
  std::vector<float> o;    // [row][head][v_dim], unrounded
  std::vector<float> lse;  // [row][head]
};

// The type that weights are rounded to before they meet V: the cache's where both sides are 16-bit,
// else float32.
tw_dtype weight_type(const Case& c);

Emulation emulate(const Problem& p, tw_dtype weights);

}  // namespace tilewise::verify
