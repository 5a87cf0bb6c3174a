// Class P on tensor cores: bf16, head dims up to 192.
#include "cuda/launch/prefill.cuh"

namespace tilewise::cuda {
template core::Status launch_prefill<core::Variant<core::Bf16, 192>>(const AttentionLaunch&);
}  // namespace tilewise::cuda
