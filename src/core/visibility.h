// Which keys a query row sees. The one rule of the library; every kernel, the oracle and the
// planner use it.
#pragma once

#include <cstdint>

#include "core/host_device.h"

namespace tilewise::core {

struct Visibility {
  bool causal, has_left, has_right;
  std::int64_t window_left, window_right;  // inclusive distances
};

struct KeyRange {
  std::int64_t begin, end;  // empty if begin >= end
};

// Keys that a row at `pos` sees of `kv_len` keys, before mask and holes; {0, 0} if none.
TW_DEVICE inline KeyRange visible_keys(const Visibility& rule, std::int64_t pos,
                                       std::int64_t kv_len) {
  std::int64_t begin = 0;
  std::int64_t end = kv_len;
  if (rule.has_left && pos - rule.window_left > begin) begin = pos - rule.window_left;
  if (rule.causal && pos + 1 < end) end = pos + 1;
  if (rule.has_right && pos + rule.window_right + 1 < end) end = pos + rule.window_right + 1;
  if (begin >= end) return {0, 0};
  return {begin, end};
}

struct Mask {
  const std::uint8_t* data;  // null: no mask
  std::int64_t batch_stride, head_stride, row_stride;
  const std::int64_t* offset;
  const std::int32_t* first_key;
  std::int64_t width;
  std::int64_t bytes;  // extent of data, 0: unknown
};

// The mask row of (request, head, row): keys before `first_key` are kept, keys past `end` are not.
struct MaskRow {
  const std::uint8_t* data;  // byte of key j: data[j - first_key]
  std::int64_t first_key, end;
};

// A row that would leave the mask's stated extent keeps nothing past its first key; `inside` says
// so. `offset` is read on the device, so it is compared with the extent before anything is added to
// it.
TW_DEVICE inline MaskRow mask_row(const Mask& mask, std::int32_t request, std::int32_t head,
                                  std::int64_t row, bool* inside) {
  const std::int64_t first = mask.first_key != nullptr ? mask.first_key[request] : 0;
  const std::int64_t base =
      mask.offset != nullptr ? mask.offset[request] : request * mask.batch_stride;
  const bool base_inside = mask.offset == nullptr || (base >= 0 && base <= mask.bytes);
  const std::int64_t at =
      (base_inside ? base : 0) + head * mask.head_stride + row * mask.row_stride;
  *inside = base_inside && (mask.bytes == 0 || (at >= 0 && at <= mask.bytes - mask.width));
  if (!*inside) return {mask.data, first, first};
  return {mask.data + at, first, first + mask.width};
}

TW_DEVICE inline bool keeps(const MaskRow& row, std::int64_t key) {
  if (key < row.first_key) return true;
  return key < row.end && row.data[key - row.first_key] != 0;
}

}  // namespace tilewise::core
