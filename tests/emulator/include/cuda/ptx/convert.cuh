// Host version of src/cuda/ptx/convert.cuh.
#pragma once

#include "core/types.h"

namespace tilewise::cuda::ptx {

inline float half_to_float(std::uint16_t h) { return core::fp16_to_float(h); }

}  // namespace tilewise::cuda::ptx
