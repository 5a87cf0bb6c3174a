// Starting kernels: launch attributes, and CUDA's error codes as Status. Errors that other code
// left behind are neither read nor cleared.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/status.h"

namespace tilewise::cuda {

inline core::Status backend_error(const char* what, cudaError_t error) {
  return core::Status::error(core::Code::kBackendError, "%s: %s (%s)", what,
                             cudaGetErrorString(error), cudaGetErrorName(error));
}

#define TW_CUDA_TRY(expr)                                               \
  do {                                                                  \
    if (const cudaError_t tw_error_ = (expr); tw_error_ != cudaSuccess) \
      return ::tilewise::cuda::backend_error(#expr, tw_error_);         \
  } while (false)

struct Grid {
  std::int64_t blocks;
  std::int32_t threads;
  std::int32_t shared_bytes;
  std::int32_t cluster;   // blocks of a cluster, 1: none
  bool dependent_launch;  // may start before the grid in front of it has ended
};

// Lets a kernel use what shared memory and cluster size the device has, once for each device and
// kernel: `Tag` names the kernel, since function pointers of one signature share a type.
template <class Tag, class Kernel>
core::Status prepare_kernel(Kernel kernel, bool wide_clusters) {
  constexpr std::int32_t kDevices = 64;
  static bool ready[kDevices] = {};  // a race sets the same attributes twice
  int device = 0;
  TW_CUDA_TRY(cudaGetDevice(&device));
  if (device < kDevices && __atomic_load_n(&ready[device], __ATOMIC_ACQUIRE)) return {};
  int most = 0;
  TW_CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  cudaFuncAttributes own{};
  TW_CUDA_TRY(cudaFuncGetAttributes(&own, kernel));
  most -= static_cast<int>(own.sharedSizeBytes);
  TW_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most));
  if (wide_clusters) {
    int major = 0;
    TW_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    if (major >= 9) {
      TW_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    }
  }
  if (device < kDevices) __atomic_store_n(&ready[device], true, __ATOMIC_RELEASE);
  return {};
}

template <class Kernel, class... Params>
core::Status start(Kernel kernel, const Grid& grid, void* stream, const Params&... params) {
  if (grid.blocks <= 0) return {};
  if (grid.blocks > INT32_MAX) {
    return core::Status::error(core::Code::kUnsupported,
                               "the call needs %lld blocks, a grid has up to 2^31 - 1",
                               static_cast<long long>(grid.blocks));
  }
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (grid.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
    ++count;
  }
  if (grid.dependent_launch) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  TW_CUDA_TRY(cudaLaunchKernelEx(&config, kernel, params...));
  return {};
}

}  // namespace tilewise::cuda
