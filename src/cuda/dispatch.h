// The manifest as a table: the launch function of a body for an element type and an instance.
#pragma once

#include "cuda/launch/launch.h"

namespace tilewise::cuda {

using LaunchFunction = core::Status (*)(const AttentionLaunch&);

enum class Body : std::int32_t { kDecode, kPrefill };

// Null if the manifest has no such line.
LaunchFunction find_launch(Body body, core::DType type, std::int32_t dim);

}  // namespace tilewise::cuda
