// A row of elements from one place and type to another, each rounded once to nearest even.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/types.h"

namespace tilewise::cpu {

inline const void* element_address(const void* base, core::DType type, std::int64_t index) {
  return static_cast<const char*>(base) + index * core::size_of(type);
}

inline void* element_address(void* base, core::DType type, std::int64_t index) {
  return static_cast<char*>(base) + index * core::size_of(type);
}

// Rows of the same type keep their bytes, NaN payloads included. The rows must not overlap.
inline void convert_row(void* to, core::DType to_type, const void* from, core::DType from_type,
                        std::int64_t count) {
  if (to_type == from_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count * core::size_of(to_type)));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    core::store_element(to, to_type, i, core::load_element(from, from_type, i));
  }
}

}  // namespace tilewise::cpu
