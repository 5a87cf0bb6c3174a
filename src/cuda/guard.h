// Makes a call's device current for the call's duration and restores the caller's.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace tilewise::cuda {

class DeviceGuard {
 public:
  DeviceGuard() = default;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  core::Status enter(std::int32_t index);

 private:
  int before_ = 0;
  bool entered_ = false;
};

}  // namespace tilewise::cuda
