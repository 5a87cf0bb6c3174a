// Memory with a guard on either side. Guards hold a pattern that a write would change; under
// AddressSanitizer they may not be read either.
#pragma once

#include <cstring>

#include "verify/case.h"

namespace tilewise::verify {

constexpr std::uint8_t kPoison = 0xFF;  // a NaN in every element type when repeated

class Block {
 public:
  Block() = default;
  // `bytes` of `fill`, at `offset` bytes past a multiple of 256: as little alignment as a caller
  // may have.
  explicit Block(Index bytes, Index offset = 0, std::uint8_t fill = kPoison);
  ~Block();
  Block(Block&& other) noexcept { swap(other); }
  Block& operator=(Block&& other) noexcept {
    swap(other);
    return *this;
  }

  // Bytes of the guard on either side.
  static constexpr Index kGuardBytes = 256;

  std::uint8_t* data() const { return data_; }
  Index bytes() const { return bytes_; }
  // Both guards and what is between them, for copies of the whole.
  std::uint8_t* guarded() const;
  Index guarded_bytes() const;
  bool guards_intact() const;
  // Whether every byte still equals `fill`.
  bool is_all(std::uint8_t fill) const;

 private:
  void swap(Block& other);
  std::vector<std::uint8_t> memory_;
  std::uint8_t* data_ = nullptr;
  Index bytes_ = 0;
};

// Where the elements of a [batch, token, head] tensor of rows lie. `origin`: the element that (0,
// 0, 0) points at.
struct Strides {
  Index batch = 0, token = 0, head = 0, origin = 0, extent = 0;
  Index of(Index b, Index t, Index h) const { return origin + b * batch + t * token + h * head; }
};

}  // namespace tilewise::verify
