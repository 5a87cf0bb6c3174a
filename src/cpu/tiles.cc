// Blocks of rows and tiles of keys: the one place where the bodies' view of a call is built.
#include "cpu/tiles.h"

#include <cmath>
#include <cstring>

#include "core/fold.h"

namespace tilewise::cpu {
namespace {

constexpr float kLog2e = 1.44269504088896340736f;
alignas(64) const float kZeroRow[kMaxHeadDim] = {};

// Bits [begin, end) of 64; both may lie outside.
std::uint64_t lane_range(std::int64_t begin, std::int64_t end) {
  const std::int64_t from = begin > 0 ? begin : 0;
  const std::int64_t to = end < kTileKeys ? end : kTileKeys;
  if (from >= to) return 0;
  return (~std::uint64_t{0} >> (kTileKeys - (to - from))) << from;
}

// Bit i is set if byte i is not 0.
std::uint64_t pack_bytes(const std::uint8_t* bytes) {
  std::uint64_t x;
  std::memcpy(&x, bytes, sizeof x);
  x |= x >> 4;
  x |= x >> 2;
  x |= x >> 1;
  x &= 0x0101010101010101u;
  return (x * 0x0102040810204080u) >> 56;
}

// Lanes that the mask keeps, of those in `wanted`. Reads no byte outside the mask's row.
std::uint64_t mask_lanes(const core::MaskRow& mask, std::int64_t first, std::uint64_t wanted) {
  const std::int64_t begin = mask.first_key - first;
  const std::int64_t end = mask.end - first;
  std::uint64_t kept = lane_range(0, begin);
  std::uint64_t left = wanted & lane_range(begin, end);
  while (left != 0) {
    const std::int64_t lane = __builtin_ctzll(left);
    const std::uint8_t* bytes = mask.data + (lane - begin);
    const bool eight = lane + 8 <= end && lane + 8 <= kTileKeys;
    const std::uint64_t bits = eight ? pack_bytes(bytes) : (*bytes != 0 ? 1u : 0u);
    kept |= bits << lane;
    left &= ~lane_range(lane, lane + (eight ? 8 : 1));
  }
  return kept & wanted;
}

void point_to_zeros(KeyTile* tile, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    tile->k[i] = kZeroRow;
    tile->v[i] = kZeroRow;
  }
}

void point_to_rows(const Block& block, const KeyRun& run, std::int64_t lane, KeyTile* tile) {
  const KeyRows k = k_rows(block.keys, run, block.kv_head);
  const KeyRows v = v_rows(block.keys, run, block.kv_head);
  const std::int64_t k_step = k.stride * core::size_of(k.type);
  const std::int64_t v_step = v.stride * core::size_of(v.type);
  const char* k_at = static_cast<const char*>(k.data);
  const char* v_at = static_cast<const char*>(v.data);
  for (std::int64_t i = 0; i < run.keys; ++i) {
    tile->k[lane + i] = k_at + i * k_step;
    tile->v[lane + i] = v_at + i * v_step;
  }
}

// Appended rows of another type that have no slot: converted, since what counts is what the cache
// would hold.
void convert_lanes(const Block& block, std::int64_t begin, std::int64_t end, KeyTile* tile) {
  const core::Attention& a = block.call();
  const std::int64_t row = a.head_dim + a.v_head_dim;
  for (std::int64_t i = begin; i < end; ++i) {
    void* k = element_address(block.converted, a.kv_dtype, i * row);
    void* v = element_address(block.converted, a.kv_dtype, i * row + a.head_dim);
    convert_row(k, a.kv_dtype, tile->k[i], a.append.dtype, a.head_dim);
    convert_row(v, a.kv_dtype, tile->v[i], a.append.dtype, a.v_head_dim);
    tile->k[i] = k;
    tile->v[i] = v;
  }
}

// Sets the addresses of lanes [begin, end); returns those that are there.
std::uint64_t locate_lanes(const Block& block, std::int64_t begin, std::int64_t end,
                           KeyTile* tile) {
  const core::Attention& a = block.call();
  std::uint64_t present = lane_range(begin, end);
  for (std::int64_t lane = begin; lane < end;) {
    const KeyRun run = find_keys(block.keys, tile->first + lane, tile->first + end);
    const std::int64_t next = lane + run.keys;
    if (run.origin == KeyOrigin::kMissing) {
      point_to_zeros(tile, lane, next);
      present &= ~lane_range(lane, next);
    } else {
      point_to_rows(block, run, lane, tile);
      if (run.origin == KeyOrigin::kNew && a.append.dtype != a.kv_dtype) {
        convert_lanes(block, lane, next, tile);
      }
    }
    lane = next;
  }
  return present;
}

void hide_unseen(KeyTile* tile) {
  for (std::uint64_t left = ~tile->any; left != 0; left &= left - 1) {
    const std::int64_t lane = __builtin_ctzll(left);
    point_to_zeros(tile, lane, lane + 1);
  }
}

}  // namespace

void open_rows(const Block& block, BlockRows* rows) {
  const core::Attention& a = block.call();
  const std::int64_t len = block.keys.cache.len;
  const std::int32_t request = block.keys.cache.request;
  rows->all = {INT64_MAX, 0};
  rows->common = {0, len};
  rows->masked = a.mask.data != nullptr;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t query_row = block.query_row(i);
    const std::int64_t head = block.head(i);
    const std::int64_t position = core::row_position(a, request, block.keys.rows, query_row, len);
    const core::KeyRange range = core::visible_keys(a.rule, position, len);
    rows->position[i] = position;
    rows->range[i] = range;
    rows->slope_log2[i] =
        a.alibi != nullptr ? a.alibi[request * a.alibi_batch_stride + head] * kLog2e : 0.0f;
    if (rows->masked) {
      bool inside;
      rows->mask[i] =
          core::mask_row(a.mask, request, static_cast<std::int32_t>(head), query_row, &inside);
    }
    if (range.begin > rows->common.begin) rows->common.begin = range.begin;
    if (range.end < rows->common.end) rows->common.end = range.end;
    if (range.begin >= range.end) continue;
    if (range.begin < rows->all.begin) rows->all.begin = range.begin;
    if (range.end > rows->all.end) rows->all.end = range.end;
  }
  if (rows->all.begin >= rows->all.end) rows->all = {0, 0};
}

const void* q_row(const Block& block, std::int64_t row) {
  const core::Attention& a = block.call();
  const std::int64_t at =
      core::row_offset(a.q_stride, a.q_indptr != nullptr, block.keys.cache.request, block.keys.rows,
                       block.query_row(row), block.head(row));
  return element_address(a.q, a.q_dtype, at);
}

bool open_tile(const Block& block, const BlockRows& rows, std::int64_t first, std::int64_t end,
               KeyTile* tile) {
  const std::uint64_t wanted =
      lane_range(rows.all.begin - first, rows.all.end - first) & lane_range(0, end - first);
  if (wanted == 0) return false;
  tile->first = first;
  const std::int64_t lane_begin = __builtin_ctzll(wanted);
  const std::int64_t lane_end = kTileKeys - __builtin_clzll(wanted);
  point_to_zeros(tile, 0, lane_begin);
  point_to_zeros(tile, lane_end, kTileKeys);
  const std::uint64_t present = locate_lanes(block, lane_begin, lane_end, tile) & wanted;
  const std::uint64_t common =
      lane_range(rows.common.begin - first, rows.common.end - first) & present;
  tile->any = 0;
  tile->all = ~std::uint64_t{0};
  if (!rows.masked && common == present) {
    for (std::int64_t i = 0; i < block.count; ++i) tile->seen[i] = present;
    tile->any = present;
    tile->all = present;
  } else {
    for (std::int64_t i = 0; i < block.count; ++i) {
      const core::KeyRange range = rows.range[i];
      std::uint64_t seen = lane_range(range.begin - first, range.end - first) & present;
      if (rows.masked && seen != 0) seen = mask_lanes(rows.mask[i], first, seen);
      tile->seen[i] = seen;
      tile->any |= seen;
      tile->all &= seen;
    }
  }
  if (tile->any == 0) return false;
  if (tile->any != ~std::uint64_t{0}) hide_unseen(tile);
  return true;
}

RowEnd end_row(const Block& block, std::int64_t row, float maximum, float sum) {
  const core::Attention& a = block.call();
  const bool ragged = a.q_indptr != nullptr;
  const std::int32_t request = block.keys.cache.request;
  const std::int64_t query_row = block.query_row(row);
  const std::int64_t head = block.head(row);
  const core::RequestRows& all = block.keys.rows;
  if (a.lse != nullptr) {
    a.lse[core::row_offset(a.lse_stride, ragged, request, all, query_row, head)] =
        core::natural_lse(maximum, sum);
  }
  const std::int64_t at = core::row_offset(a.o_stride, ragged, request, all, query_row, head);
  void* output = static_cast<char*>(a.o) + at * core::size_of(a.o_dtype);
  if (maximum == -INFINITY) return {0.0f, output};
  core::SinkResult end{1.0f, sum};
  if (a.sinks != nullptr) end = core::enter_sink(maximum, sum, a.sinks[head]);
  return {end.scale / end.sum, output};
}

void finish_row(const Block& block, std::int64_t row, const RowState& state) {
  const core::Attention& a = block.call();
  const RowEnd end = end_row(block, row, state.maximum, state.sum);
  // + 0: a zero has one sign, whichever keys that a row does not see were added to it as zeros.
  if (a.o_dtype == core::DType::kFp32) {
    float* o = static_cast<float*>(end.output);
    for (std::int64_t d = 0; d < a.v_head_dim; ++d) o[d] = state.output[d] * end.factor + 0.0f;
  } else {
    for (std::int64_t d = 0; d < a.v_head_dim; ++d) {
      core::store_element(end.output, a.o_dtype, d, state.output[d] * end.factor + 0.0f);
    }
  }
}

}  // namespace tilewise::cpu
