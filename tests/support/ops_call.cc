// Copies of arrays between guards, in host or device memory.
#include "tests/support/ops_call.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "common/device.h"
#include "verify/backend.h"

namespace tilewise::tests {
namespace {

constexpr std::size_t kGuard = 256;
constexpr std::uint8_t kGuardByte = 0xA5;

}  // namespace

bool has_device() { return verify::cuda_usable(); }

// An array between its guards, on the host and, at `device`, on the device.
struct Place::Copy {
  const void* array;
  std::size_t bytes, offset;
  Bytes memory;
  std::unique_ptr<tools::DeviceMemory> device;

  std::size_t first() const { return kGuard + offset; }
  void* address() {
    return device != nullptr ? reinterpret_cast<void*>(device->address() + first())
                             : static_cast<void*>(memory.data() + first());
  }
  bool guards_intact() const {
    const auto begin = memory.begin(), end = memory.end();
    const auto clean = [](std::uint8_t byte) { return byte == kGuardByte; };
    return std::all_of(begin, begin + static_cast<Index>(first()), clean) &&
           std::all_of(begin + static_cast<Index>(first() + bytes), end, clean);
  }
};

Place::Place(Side side) : side_(side) {
  target_.struct_size = sizeof target_;
  target_.device_kind = side == Side::kDevice ? TW_DEVICE_CUDA : TW_DEVICE_CPU;
  target_.threads = side == Side::kDevice ? 0 : 2;
  if (side == Side::kDevice) target_.stream = tools::thread_stream().get();
}

Place::~Place() = default;

void* Place::copy_of(const void* array, std::size_t bytes, Index offset) {
  for (const auto& copy : copies_) {
    if (bytes != 0 && copy->array == array) return copy->address();
  }
  auto copy = std::make_unique<Copy>();
  copy->array = array;
  copy->bytes = bytes;
  copy->offset = static_cast<std::size_t>(offset);
  std::size_t shift = 0;
  if (side_ == Side::kHost) {
    // The vector's memory starts anywhere: as much in front as makes the phase right.
    copy->memory.reserve(2 * kGuard + copy->offset + bytes + kGuard);
    shift = kGuard - reinterpret_cast<std::uintptr_t>(copy->memory.data()) % kGuard;
  }
  copy->offset += shift;
  copy->memory.assign(copy->first() + bytes + kGuard, kGuardByte);
  if (bytes != 0) std::memcpy(copy->memory.data() + copy->first(), array, bytes);
  if (side_ == Side::kDevice) {
    copy->device = std::make_unique<tools::DeviceMemory>(copy->memory.size());
    EXPECT_NE(copy->device->address(), 0u);
    EXPECT_TRUE(copy->device->upload(0, copy->memory.data(), copy->memory.size()));
  }
  copies_.push_back(std::move(copy));
  return copies_.back()->address();
}

std::string Place::finish() {
  if (side_ == Side::kDevice) {
    if (const std::string error = tools::thread_stream().synchronize(); !error.empty())
      return error;
  }
  for (const auto& copy : copies_) {
    if (side_ == Side::kDevice &&
        !copy->device->download(copy->memory.data(), 0, copy->memory.size())) {
      return "an array cannot be read back";
    }
    if (!copy->guards_intact()) return "a guard was written";
    const std::uint8_t* at = copy->memory.data() + copy->first();
    if (copy->array == record_.data()) {
      std::memcpy(record_.data(), at, sizeof record_[0]);
    } else {
      arrays_.emplace_back(at, at + copy->bytes);
    }
  }
  return "";
}

Outcome run_call(Side side, const Call& call) {
  Place place(side);
  Outcome outcome{};
  outcome.status = call(place);
  EXPECT_EQ(outcome.status, TW_OK) << tw_last_error();
  EXPECT_EQ(place.finish(), "");
  outcome.arrays = place.arrays();
  outcome.fault = place.fault();
  return outcome;
}

namespace {

void expect_same_outcome(const Outcome& host, const Outcome& device) {
  ASSERT_EQ(host.arrays.size(), device.arrays.size());
  for (std::size_t i = 0; i < host.arrays.size(); ++i) {
    const Bytes& a = host.arrays[i];
    const Bytes& b = device.arrays[i];
    ASSERT_EQ(a.size(), b.size());
    const auto at = std::mismatch(a.begin(), a.end(), b.begin()).first;
    EXPECT_TRUE(at == a.end()) << "array " << i << " differs from byte " << at - a.begin();
  }
  EXPECT_EQ(host.fault.code, device.fault.code);
  EXPECT_EQ(host.fault.what, device.fault.what);
  EXPECT_EQ(host.fault.request, device.fault.request);
  EXPECT_EQ(host.fault.row, device.fault.row);
  EXPECT_EQ(host.fault.value, device.fault.value);
}

}  // namespace

Outcome expect_same(const Call& call) {
  Outcome host = run_call(Side::kHost, call);
  expect_same_outcome(host, run_call(Side::kDevice, call));
  return host;
}

void expect_near(const Call& call, std::size_t array, tw_dtype type, Distance distance) {
  const Outcome host = run_call(Side::kHost, call);
  const Outcome device = run_call(Side::kDevice, call);
  ASSERT_LT(array, std::min(host.arrays.size(), device.arrays.size()));
  const Bytes& a = host.arrays[array];
  const Bytes& b = device.arrays[array];
  ASSERT_EQ(a.size(), b.size());
  const Index count = static_cast<Index>(a.size()) / verify::element_bytes(type);
  for (Index i = 0; i < count; ++i) {
    const double x = verify::load(a.data(), type, i), y = verify::load(b.data(), type, i);
    if (std::isfinite(x) && std::isfinite(y)) {
      ASSERT_LE(std::fabs(x - y), distance.ulps * verify::ulp_at(type, x) + distance.absolute)
          << "element " << i << ": " << x;
    } else {
      ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << "element " << i << ": " << y;
    }
  }
}

void DeviceTest::SetUp() {
  if (has_device()) return;
  if (std::getenv("TILEWISE_REQUIRE_GPU") != nullptr) FAIL() << "no CUDA device can be used";
  GTEST_SKIP() << "no CUDA device";
}

}  // namespace tilewise::tests
