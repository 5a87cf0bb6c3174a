// Devices: facts for the planner, and the guard that makes a call's device current.
#include <cuda_runtime_api.h>

#include <atomic>

#include "cuda/backend.h"
#include "cuda/guard.h"
#include "cuda/launch/runtime.cuh"

namespace tilewise::cuda {
namespace {

constexpr std::int32_t kDevices = 64;

struct KnownDevice {
  std::atomic<bool> known{false};
  plan::CudaFacts facts{};
  char name[256] = {};
};

bool read_facts(std::int32_t index, plan::CudaFacts* facts) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || index < 0 || index >= count) return false;
  int major = 0, minor = 0, sms = 0, block = 0, sm = 0;
  const auto read = [index](int* value, cudaDeviceAttr attribute) {
    return cudaDeviceGetAttribute(value, attribute, index) == cudaSuccess;
  };
  if (!read(&major, cudaDevAttrComputeCapabilityMajor) ||
      !read(&minor, cudaDevAttrComputeCapabilityMinor) ||
      !read(&sms, cudaDevAttrMultiProcessorCount) ||
      !read(&block, cudaDevAttrMaxSharedMemoryPerBlockOptin) ||
      !read(&sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor)) {
    return false;
  }
  *facts = {true, 10 * major + minor, sms, block, sm, "CUDA device"};
  return true;
}

}  // namespace

bool built() { return true; }

plan::CudaFacts facts(std::int32_t index) {
  static KnownDevice devices[kDevices];
  if (index < 0 || index >= kDevices) return plan::h200_facts();
  KnownDevice& device = devices[index];
  if (device.known.load(std::memory_order_acquire)) return device.facts;
  plan::CudaFacts read;
  if (!read_facts(index, &read)) return plan::h200_facts();
  device.facts = read;  // a race writes the same facts twice
  device.known.store(true, std::memory_order_release);
  return read;
}

core::Status check_device(std::int32_t index) {
  const plan::CudaFacts device = facts(index);
  if (!device.present) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return backend_error("no CUDA device can be used", error);
    return core::Status::error(core::Code::kInvalidArgument,
                               "target.device_index is %d, wanted one of %d devices", index, count);
  }
  if (device.compute < plan::kLeastCompute) {
    return core::Status::error(core::Code::kUnsupported,
                               "target.device_index is %d, of compute capability %d.%d, this build "
                               "does 8.0 and up",
                               index, device.compute / 10, device.compute % 10);
  }
  return {};
}

core::Status DeviceGuard::enter(std::int32_t index) {
  TW_TRY(check_device(index));
  TW_CUDA_TRY(cudaGetDevice(&before_));
  if (before_ == index) return {};
  TW_CUDA_TRY(cudaSetDevice(index));
  entered_ = true;
  return {};
}

DeviceGuard::~DeviceGuard() {
  if (entered_) cudaSetDevice(before_);
}

}  // namespace tilewise::cuda
