// Element types of the tensor-core bodies and the key of an instance. Plain C++: the dispatch table
// names instances too.
#pragma once

#include "core/types.h"

namespace tilewise::core {

struct Bf16 {
  static constexpr DType kType = DType::kBf16;
};

struct Fp16 {
  static constexpr DType kType = DType::kFp16;
};

// One compiled variant of a body: 16-bit q, K and V of `E`, rows of up to kDim elements.
template <class E, int kHeadDim>
struct Variant {
  using Element = E;
  static constexpr int kDim = kHeadDim;
};

}  // namespace tilewise::core
