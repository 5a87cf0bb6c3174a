// Class D on tensor cores: fp16, head dims up to 128.
#include "cuda/launch/decode.cuh"

namespace tilewise::cuda {
template core::Status launch_decode<core::Variant<core::Fp16, 128>>(const AttentionLaunch&);
}  // namespace tilewise::cuda
