// Reading of versioned structs: an older caller's missing tail is zero, a newer caller's unknown
// tail must be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/status.h"

namespace tilewise::api {

// A claim beyond this is taken for garbage, so that a wild size never makes us read far past the
// struct.
constexpr std::uint32_t kMostUnknownBytes = 1024;

template <class T>
core::Status read_struct(const char* name, const T* from, T* to) {
  if (from == nullptr)
    return core::invalid_argument(name, static_cast<const void*>(from), "a struct");
  if (reinterpret_cast<std::uintptr_t>(from) % alignof(T) != 0) {
    return core::Status::error(core::Code::kInvalidArgument,
                               "%s is misaligned, wanted %zu-byte alignment", name, alignof(T));
  }
  std::uint32_t size;
  std::memcpy(&size, from, sizeof size);
  // Every version's size is a multiple of the alignment. Another one would end inside a field, and
  // half of a pointer must not be taken for a pointer.
  if (size < sizeof size || size % alignof(T) != 0 || size > sizeof(T) + kMostUnknownBytes) {
    return core::Status::error(core::Code::kInvalidArgument,
                               "%s.struct_size is %u, wanted sizeof = %zu", name, size, sizeof(T));
  }
  std::memset(static_cast<void*>(to), 0, sizeof(T));
  std::memcpy(static_cast<void*>(to), from, std::min<std::size_t>(size, sizeof(T)));
  const char* bytes = reinterpret_cast<const char*>(from);
  for (std::size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return core::Status::error(
          core::Code::kUnsupported,
          "%s has a field at byte %zu that this version does not know, wanted zero", name, i);
    }
  }
  return {};
}

}  // namespace tilewise::api
