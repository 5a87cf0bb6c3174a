// Class P on tensor cores: bf16, head dims up to 256.
#include "cuda/launch/prefill.cuh"

namespace tilewise::cuda {
template core::Status launch_prefill<core::Variant<core::Bf16, 256>>(const AttentionLaunch&);
}  // namespace tilewise::cuda
