// One call of a small operation on the host and on a CUDA device: the same arrays copied to either
// memory, guards around each, and the bytes that come back.
#pragma once

#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "verify/numbers.h"

namespace tilewise::tests {

using verify::Index;
using Bytes = std::vector<std::uint8_t>;

enum class Side { kHost, kDevice };

// Whether the library and this machine can run calls on a CUDA device.
bool has_device();

// The memory of one side of one call.
class Place {
 public:
  explicit Place(Side side);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // Address of the copy of `array` in this memory, `offset` bytes past a multiple of 256; the same
  // for every call with the same array.
  template <class T>
  T* of(const std::vector<T>& array, Index offset = 0) {
    return static_cast<T*>(copy_of(array.data(), array.size() * sizeof(T), offset));
  }
  const tw_target* target() const { return &target_; }
  tw_status_record* status() { return of(record_); }

  // Waits for the device, then reads everything back; the text says what went wrong.
  std::string finish();
  // After finish(): arrays in the order of their first use, and the status record.
  const std::vector<Bytes>& arrays() const { return arrays_; }
  const tw_status_record& fault() const { return record_[0]; }

 private:
  struct Copy;
  void* copy_of(const void* array, std::size_t bytes, Index offset);

  Side side_;
  tw_target target_{};
  std::vector<tw_status_record> record_{1};
  std::vector<std::unique_ptr<Copy>> copies_;
  std::vector<Bytes> arrays_;
};

// What a call left behind, or a failure of the test.
struct Outcome {
  tw_status status;
  std::vector<Bytes> arrays;
  tw_status_record fault;
};

// `call` fills an argument struct with addresses of the place and returns the entry point's status.
using Call = std::function<tw_status(Place&)>;
Outcome run_call(Side side, const Call& call);

// Succeeds on both sides with the same bytes in every array and the same fault. Returns the host's
// outcome.
Outcome expect_same(const Call& call);

// How far apart two numbers may be: `ulps` of the element type at the host's, and `absolute` more.
struct Distance {
  double ulps, absolute;
};

// Array `array` of both sides holds elements of `type` that are as near as that, or both NaN, or
// the same infinity. The NaNs of arithmetic have other bits on a device.
void expect_near(const Call& call, std::size_t array, tw_dtype type, Distance distance);

// Tests that need a device: skipped without, or failed if TILEWISE_REQUIRE_GPU is set.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace tilewise::tests
