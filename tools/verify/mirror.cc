// Copies to a device and back.
#include "verify/mirror.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace tilewise::verify {
namespace {

constexpr std::uintptr_t kAlignment = 256;  // of an allocation, at least

// Guards left out, so that a checker of accesses sees the first byte read past an array.
bool tight() {
  static const bool wanted = std::getenv("TILEWISE_TIGHT_ARRAYS") != nullptr;
  return wanted;
}

}  // namespace

void Mirror::add(const Block& block) {
  if (block.bytes() == 0) return;
  if (tight()) {
    add(block.data(), block.bytes(), Role::kBlock);
  } else {
    add(block.guarded(), block.guarded_bytes(), Role::kBlock);
  }
}

void Mirror::add(const void* array, Index bytes, Role role) {
  if (array == nullptr || bytes <= 0 || tools::is_device_pointer(array)) return;
  auto* begin = static_cast<std::uint8_t*>(const_cast<void*>(array));
  for (const Wanted& other : wanted_) {
    const bool inside = begin >= other.begin && begin < other.begin + other.bytes;
    if (inside && other.role == Role::kBlock) return;
  }
  wanted_.push_back({begin, bytes, role});
}

std::vector<Mirror::Wanted> Mirror::merged() const {
  std::vector<Wanted> sorted = wanted_, result;
  std::sort(sorted.begin(), sorted.end(),
            [](const Wanted& a, const Wanted& b) { return a.begin < b.begin; });
  for (const Wanted& next : sorted) {
    if (result.empty() || next.begin >= result.back().begin + result.back().bytes) {
      result.push_back(next);
      continue;
    }
    Wanted& last = result.back();
    last.bytes = std::max(last.bytes, next.begin - last.begin + next.bytes);
    last.role = std::max(last.role, next.role);
  }
  return result;
}

void Mirror::upload() {
  for (const Wanted& array : merged()) {
    const std::size_t phase = reinterpret_cast<std::uintptr_t>(array.begin) % kAlignment;
    const auto bytes = static_cast<std::size_t>(array.bytes);
    regions_.push_back(
        {array.begin, array.bytes, array.role, phase, tools::DeviceMemory(phase + bytes)});
    const tools::DeviceMemory& memory = regions_.back().memory;
    if (memory.address() == 0 || !memory.upload(phase, array.begin, bytes)) {
      throw std::runtime_error("an array of " + std::to_string(bytes) +
                               " bytes cannot be copied to the device");
    }
  }
}

const void* Mirror::find(const void* host) const {
  const auto* at = static_cast<const std::uint8_t*>(host);
  for (const Region& region : regions_) {
    if (at < region.begin || at >= region.end()) continue;
    const auto offset = region.phase + static_cast<std::size_t>(at - region.begin);
    return reinterpret_cast<const void*>(region.memory.address() + offset);
  }
  return host;
}

std::string Mirror::bring_back() {
  std::string error = tools::thread_stream().synchronize();
  std::vector<std::uint8_t> now;
  for (const Region& region : regions_) {
    const auto bytes = static_cast<std::size_t>(region.bytes);
    if (!error.empty()) return error;
    now.resize(bytes);
    if (!region.memory.download(now.data(), region.phase, bytes)) {
      error = "an array cannot be read back";
    } else if (region.role != Role::kInput) {
      std::copy(now.begin(), now.end(), region.begin);
    } else if (std::memcmp(now.data(), region.begin, bytes) != 0) {
      error = "wrote into an input";
    }
  }
  return error;
}

}  // namespace tilewise::verify
