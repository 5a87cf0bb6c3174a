// Host version of src/cuda/launch/runtime.cuh.
#pragma once

#include <cstdint>

#include "core/status.h"

#define TW_CUDA_TRY(expr) static_cast<void>(expr)

enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerMultiprocessor };
inline int cudaGetDevice(int* device) { return *device = 0; }
inline int cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 233472;  // an H200's
  return 0;
}

namespace tilewise::cuda {

struct Grid {
  std::int64_t blocks;
  std::int32_t threads, shared_bytes, cluster;
  bool dependent_launch;
};

template <class Tag, class Kernel>
core::Status prepare_kernel(Kernel, bool) {
  return {};
}

template <class Kernel, class... Params>
core::Status start(Kernel kernel, const Grid& grid, void*, const Params&... params) {
  emulator::run(grid.blocks, grid.threads, grid.shared_bytes, [&] { kernel(params...); });
  return {};
}

}  // namespace tilewise::cuda
