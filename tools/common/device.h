// CUDA device 0 for tests and benchmarks, through the driver, which is loaded when first asked for:
// programs need no CUDA to be built or to start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tilewise::tools {

// Whether the driver is there and has a device.
bool device_usable();

// What the driver says: name, compute capability, driver version, sizes.
struct DeviceFacts {
  std::string name;
  int compute = 0;  // 10 * major + minor
  int sm_count = 0;
  int driver = 0;  // CUDA version that the driver supports, 1000 * major + 10 * minor
  std::int64_t memory_bytes = 0, l2_bytes = 0;
  std::int64_t shared_bytes_of_block = 0, shared_bytes_of_sm = 0;
};
DeviceFacts device_facts();

// Version of the driver itself; empty if the system does not say.
std::string driver_release();

// Memory that nobody has in use now.
std::size_t free_device_bytes();

// Whether `at` is memory of the device; host memory that the driver does not know is not.
bool is_device_pointer(const void* at);

// A stream that waits for no other.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* get() const { return stream_; }
  // Waits for its work; the text says what went wrong, empty if nothing.
  std::string synchronize() const;

 private:
  void* stream_ = nullptr;
};
// Of the calling thread.
const Stream& thread_stream();

// An allocation of its own, so that checkers see every byte past it. Everything happens on the
// calling thread's stream.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept : address_(other.address_) { other.address_ = 0; }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  std::uint64_t address() const { return address_; }  // 0: there was not enough memory
  // `offset`: bytes past address(). The host's memory may be used again after the call.
  bool upload(std::size_t offset, const void* from, std::size_t bytes) const;
  bool download(void* to, std::size_t offset, std::size_t bytes) const;
  bool fill(std::uint8_t byte, std::size_t bytes) const;

 private:
  std::uint64_t address_ = 0;
};

// What `work` puts on this thread's stream, recorded without running it.
class Graph {
 public:
  explicit Graph(const std::function<void()>& work);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // What went wrong when it was recorded; empty if nothing.
  const std::string& error() const { return error_; }
  // Starts it on this thread's stream; false if the driver refused.
  bool replay() const;

 private:
  void* graph_ = nullptr;
  std::string error_;
};

}  // namespace tilewise::tools
