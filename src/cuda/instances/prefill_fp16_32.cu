// Class P on tensor cores: fp16, head dims up to 32.
#include "cuda/launch/prefill.cuh"

namespace tilewise::cuda {
template core::Status launch_prefill<core::Variant<core::Fp16, 32>>(const AttentionLaunch&);
}  // namespace tilewise::cuda
