// Row classes and the chunk rule: with the fold of core/fold.h they decide the bits of a result, so
// they see a request's own lengths and static facts only, never the batch, the bounds, the layout
// or the device.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tilewise::core {

enum class RowClass : std::int32_t { kAuto = 0, kDecode = 1, kPrefill = 2 };

// Requests of at most this many rows are class D: chunked and folded. Part of the bits.
constexpr std::int64_t kDecodeRows = 16;

// Key tile of both classes on the CPU and of class D everywhere; tile edges stand at absolute
// multiples. Part of the bits, like the step of several tiles in which AMX moves a row's maximum.
constexpr std::int64_t kKeyTile = 64;

TW_DEVICE constexpr RowClass row_class(std::int64_t q_len, RowClass forced) {
  if (forced != RowClass::kAuto) return forced;
  return q_len <= kDecodeRows ? RowClass::kDecode : RowClass::kPrefill;
}

TW_DEVICE constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
TW_DEVICE constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return divide_up(a, b) * b;
}

// The same for counts below 2^31, whose division is cheap on a GPU.
TW_DEVICE constexpr std::int64_t divide_up_short(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(
      (static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b) - 1u) /
      static_cast<std::uint32_t>(b));
}

// How a class D request's visible range [begin, end) is cut; begin is a multiple of the key tile.
struct Chunks {
  std::int64_t begin, end;  // keys
  std::int64_t keys;        // of every chunk but the last; a multiple of the key tile
  std::int64_t count;       // 0 for an empty range

  TW_DEVICE std::int64_t chunk_begin(std::int64_t i) const { return begin + i * keys; }
  TW_DEVICE std::int64_t chunk_end(std::int64_t i) const {
    const std::int64_t last = begin + (i + 1) * keys;
    return last < end ? last : end;
  }
};

// 8 chunks up to 4,096 keys and 16 above fill a GPU at 8 KV heads; twice as many at fewer heads,
// where they are shared by clusters of 16 blocks. More cost more to fold than they gain: at one KV
// head and 8K keys 128 chunks took an H200 39 us.
TW_DEVICE constexpr std::int32_t most_chunks_log2(std::int64_t keys, std::int32_t kv_heads) {
  return (keys <= 4096 ? 3 : 4) + (kv_heads >= 8 ? 0 : 1);
}
TW_DEVICE constexpr std::int64_t most_chunks(std::int64_t keys, std::int32_t kv_heads) {
  return std::int64_t{1} << most_chunks_log2(keys, kv_heads);
}

// `first_visible`: first key that the request's first row can see; `kv_len`: the request's length.
TW_DEVICE constexpr Chunks cut_chunks(std::int64_t first_visible, std::int64_t kv_len,
                                      std::int32_t kv_heads) {
  if (first_visible >= kv_len) return {0, 0, kKeyTile, 0};
  const std::int64_t begin = first_visible / kKeyTile * kKeyTile;
  const std::int64_t length = kv_len - begin;
  const std::int32_t shift = most_chunks_log2(length, kv_heads);
  const std::int64_t keys = round_up((length + (std::int64_t{1} << shift) - 1) >> shift, kKeyTile);
  return {begin, kv_len, keys, divide_up_short(length, keys)};
}

// Chunks that any request of at most `max_kv_len` keys can have: what workspaces are sized by.
TW_DEVICE constexpr std::int64_t bound_chunks(std::int64_t max_kv_len, std::int32_t kv_heads) {
  if (max_kv_len <= 0) return 0;
  const std::int64_t tiles = divide_up(max_kv_len, kKeyTile);
  const std::int64_t most = most_chunks(max_kv_len, kv_heads);
  return tiles < most ? tiles : most;
}

}  // namespace tilewise::core
