// Copies of host arrays in device memory, each in an allocation of its own, so that checkers see
// every byte past it, and as far from a multiple of 256 bytes as on the host.
#pragma once

#include <string>
#include <vector>

#include "common/device.h"
#include "verify/block.h"

namespace tilewise::verify {

class Mirror {
 public:
  // Until upload(): what is to be copied. A block goes with its guards, so that they tell after
  // bring_back() what was written on the device. Arrays that lie in device memory already, or begin
  // in a block, are left to themselves. Arrays that overlap share a copy.
  void add(const Block& block);
  void add_input(const void* array, Index bytes) { add(array, bytes, Role::kInput); }
  void add_output(void* array, Index bytes) { add(array, bytes, Role::kOutput); }

  // Throws std::runtime_error if the device cannot take the copies.
  void upload();
  // The address of the copy; a pointer to something else comes back as it is.
  template <class T>
  T* at(T* host) const {
    return static_cast<T*>(const_cast<void*>(find(host)));
  }
  // Waits for this thread's stream and copies outputs and blocks back. The text says what went
  // wrong, inputs that were written included; empty if nothing.
  std::string bring_back();

 private:
  enum class Role { kInput, kOutput, kBlock };
  struct Region {
    std::uint8_t* begin;
    Index bytes;
    Role role;
    std::size_t phase;
    tools::DeviceMemory memory;

    std::uint8_t* end() const { return begin + bytes; }
  };
  struct Wanted {
    std::uint8_t* begin;
    Index bytes;
    Role role;
  };
  void add(const void* array, Index bytes, Role role);
  std::vector<Wanted> merged() const;
  const void* find(const void* host) const;

  std::vector<Wanted> wanted_;
  std::vector<Region> regions_;
};

}  // namespace tilewise::verify
