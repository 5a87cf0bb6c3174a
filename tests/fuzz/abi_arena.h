// From fuzz bytes to a call whose memory is known: choices and hostile numbers from the input, and
// for every array of the call a heap block of exactly the extent that the arguments promise, so
// that AddressSanitizer sees any step outside.
#pragma once

#include <tilewise/tilewise.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

namespace tilewise::fuzz {

using Index = std::int64_t;

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return at_ < size_ ? data_[at_++] : std::uint8_t{0}; }
  Index below(Index limit) { return byte() % limit; }
  bool flag() { return byte() % 2 != 0; }
  bool rarely() { return byte() >= 250; }

  std::uint64_t word() {
    std::uint64_t bits = 0;
    for (int n = 0; n < 8; ++n) bits = bits << 8 | byte();
    return bits;
  }

  // A number that a careless caller or a corrupt array could hold.
  Index hostile() {
    constexpr Index edges[] = {
        0,         -1,        1,         INT32_MAX,       INT32_MIN,       INT32_MAX + 1LL,
        INT64_MAX, INT64_MIN, 1LL << 31, (1LL << 58) - 1, (1LL << 58) + 1, -(1LL << 62)};
    const Index choice = below(16);
    return choice < 12 ? edges[choice] : static_cast<Index>(word());
  }
  std::int32_t hostile32() { return static_cast<std::int32_t>(hostile()); }

  // `usual`, or now and then something else.
  Index mostly(Index usual) { return rarely() ? hostile() : usual; }
  std::int32_t mostly32(Index usual) { return static_cast<std::int32_t>(mostly(usual)); }

  void fill(void* to, std::size_t size) {
    for (std::size_t n = 0; n < size; ++n) static_cast<std::uint8_t*>(to)[n] = byte();
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

// a * b as a careless caller computes it: what overflows wraps.
inline Index times(Index a, Index b) {
  return static_cast<Index>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

struct Axis {
  Index count, stride;
};

// Blocks of one call. `too_large`: an extent is valid but beyond what a fuzz run may allocate, so
// the call may only be checked, not run. `impossible`: no machine has such an extent, so the call
// must be refused.
class Arena {
 public:
  bool too_large = false, impossible = false;

  // Base pointer of a tensor with these axes and `row` contiguous elements; its lowest element
  // starts the block.
  void* tensor(Bytes& in, std::initializer_list<Axis> axes, Index row, Index element_bytes) {
    __int128 low = 0, high = row;
    for (const Axis& axis : axes) {
      if (axis.count <= 0 || row <= 0) return block(in, 0);
      __int128 reach = static_cast<__int128>(axis.count - 1) * axis.stride;
      if (reach > kBeyond || reach < -kBeyond) reach = reach < 0 ? -kBeyond : kBeyond;
      (reach < 0 ? low : high) += reach;
    }
    constexpr Index most_elements = Index{1} << 59;
    if (high - low > most_elements) impossible = true;
    if ((high - low) * element_bytes > kMostBytes) {
      too_large = true;
      return block(in, 0);
    }
    std::uint8_t* base = block(in, static_cast<Index>(high - low) * element_bytes);
    return base - static_cast<Index>(low) * element_bytes;
  }

  // Small numbers, with something hostile among them.
  std::int32_t* integers(Bytes& in, Index count, Index usual_below) {
    auto* values = reinterpret_cast<std::int32_t*>(sized(in, count, 4));
    for (Index n = 0; !too_large && n < count; ++n)
      values[n] = in.mostly32(in.below(usual_below > 0 ? usual_below : 1));
    return values;
  }

  // Offsets that mostly ascend by `step` at most up to `last`.
  std::int32_t* ascending(Bytes& in, Index count, Index step, Index last) {
    auto* values = reinterpret_cast<std::int32_t*>(sized(in, count, 4));
    Index value = 0;
    for (Index n = 0; !too_large && n < count; ++n) {
      values[n] = in.mostly32(value);
      value += in.below(step + 1);
      value = value < last ? value : last;
    }
    return values;
  }

  float* floats(Bytes& in, Index count) { return reinterpret_cast<float*>(sized(in, count, 4)); }

  std::uint8_t* sized(Bytes& in, Index count, Index element_bytes) {
    if (count > kMostBytes / element_bytes) too_large = true;
    return block(in, too_large || count < 0 ? 0 : count * element_bytes);
  }

 private:
  static constexpr Index kMostBytes = 1 << 20;
  static constexpr __int128 kBeyond = static_cast<__int128>(1)
                                      << 100;  // sums of three stay in range
  struct Free {
    void operator()(std::uint8_t* p) const { std::free(p); }
  };

  // Filled with a repeated pattern: some inputs make it NaN, some infinity, most ordinary numbers.
  std::uint8_t* block(Bytes& in, Index bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    auto* data = static_cast<std::uint8_t*>(std::malloc(size != 0 ? size : 1));
    blocks_.emplace_back(data);
    std::uint8_t pattern[4] = {in.byte(), 0x3C, in.byte(), 0xBC};
    if (in.rarely()) std::memset(pattern, 0xFF, sizeof pattern);
    for (std::size_t n = 0; n < size; ++n) data[n] = pattern[n % 4];
    return data;
  }

  std::vector<std::unique_ptr<std::uint8_t, Free>> blocks_;
};

// A zeroed struct that states its size. Now and then a size that no version has, which must be
// refused; sizes of older versions, whose missing tail would change the extents drawn here, are
// tried where nothing runs.
template <class T>
T sized_struct(Bytes& in) {
  constexpr std::uint32_t wild[] = {0, 3, sizeof(T) + 5000, UINT32_MAX};
  T s{};
  s.struct_size = in.rarely() ? wild[in.below(4)] : static_cast<std::uint32_t>(sizeof(T));
  return s;
}

inline tw_dtype any_type(Bytes& in) {
  return in.rarely() ? in.hostile32() : static_cast<tw_dtype>(1 + in.below(3));
}

inline Index bytes_of(tw_dtype type, tw_dtype fallback) {
  return (type != TW_DTYPE_DEFAULT ? type : fallback) == TW_DTYPE_FP32 ? 4 : 2;
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace tilewise::fuzz
