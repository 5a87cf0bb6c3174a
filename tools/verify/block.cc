// Guarded memory.
#include "verify/block.h"

#include <algorithm>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif

namespace tilewise::verify {
namespace {

constexpr Index kGuard = Block::kGuardBytes;
constexpr std::uint8_t kGuardByte = 0xFE;  // as an element: a NaN or far too large, in every type

void forbid([[maybe_unused]] const std::uint8_t* at, [[maybe_unused]] Index bytes) {
#if defined(ASAN_POISON_MEMORY_REGION)
  ASAN_POISON_MEMORY_REGION(at, static_cast<std::size_t>(bytes));
#endif
}

void allow([[maybe_unused]] const std::uint8_t* at, [[maybe_unused]] Index bytes) {
#if defined(ASAN_UNPOISON_MEMORY_REGION)
  ASAN_UNPOISON_MEMORY_REGION(at, static_cast<std::size_t>(bytes));
#endif
}

bool all_equal(const std::uint8_t* begin, Index bytes, std::uint8_t value) {
  return std::all_of(begin, begin + bytes, [value](std::uint8_t byte) { return byte == value; });
}

}  // namespace

Block::Block(Index bytes, Index offset, std::uint8_t fill) : bytes_(bytes) {
  memory_.assign(static_cast<std::size_t>(bytes + offset + 4 * kGuard), kGuardByte);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
  data_ =
      memory_.data() + kGuard + (kGuard - static_cast<Index>(address % kGuard)) % kGuard + offset;
  std::fill(data_, data_ + bytes, fill);
  forbid(data_ - kGuard, kGuard);
  forbid(data_ + bytes, kGuard);
}

Block::~Block() {
  if (data_ == nullptr) return;
  allow(data_ - kGuard, kGuard);
  allow(data_ + bytes_, kGuard);
}

void Block::swap(Block& other) {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

bool Block::guards_intact() const {
  if (data_ == nullptr) return true;
  allow(data_ - kGuard, kGuard);
  allow(data_ + bytes_, kGuard);
  const bool intact = all_equal(data_ - kGuard, kGuard, kGuardByte) &&
                      all_equal(data_ + bytes_, kGuard, kGuardByte);
  forbid(data_ - kGuard, kGuard);
  forbid(data_ + bytes_, kGuard);
  return intact;
}

std::uint8_t* Block::guarded() const { return data_ != nullptr ? data_ - kGuard : nullptr; }

Index Block::guarded_bytes() const { return data_ != nullptr ? bytes_ + 2 * kGuard : 0; }

bool Block::is_all(std::uint8_t fill) const { return all_equal(data_, bytes_, fill); }

}  // namespace tilewise::verify
