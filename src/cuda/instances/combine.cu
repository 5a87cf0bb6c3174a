// Second kernel of class D, any types and dims.
#include "cuda/launch/combine.cuh"

namespace tilewise::cuda {
core::Status launch_combine(const AttentionLaunch& launch) { return start_combine(launch); }
}  // namespace tilewise::cuda
