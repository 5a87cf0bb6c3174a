// Layout of one worker's scratch on the CPU: sizes for the planner, offsets for
// the driver.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/rows.h"
#include "core/types.h"
#include "plan/amx_scratch.h"
#include "plan/cpu_plan.h"

namespace tilewise::plan {

// Rows that the packed body's products hold in registers; blocks are padded to
// a multiple of it.
constexpr std::int64_t kRowGroup = 6;

// Class D requests of at most this many rows (q rows x group heads) use the direct body. Part of
// the bits: the two bodies sum in different orders. Packing a tile waits for memory where the
// direct body streams: at 16 rows the direct one takes 0.6 of the time of the other, at 32 rows 0.8
// (AVX3, bf16, head dim 128; AVX2: 0.8 and 0.95), at 64 rows of either they are within 4 %.
constexpr std::int64_t kDirectRows = 32;

// KV heads of such a request that one item walks together at most, and the rows that it holds then.
// Their rows of a key lie close in most caches, and share pages of memory and translations (pages
// of 16 keys: 0.8 of the time of one head after the other).
constexpr std::int64_t kDirectHeads = 8;
constexpr std::int64_t kDirectItemRows = 64;

// KV heads of an item whose request has `packed_rows`, at most kDirectRows.
constexpr std::int64_t direct_item_heads(const CpuPlan& plan, std::int64_t packed_rows) {
  const std::int64_t fit = kDirectItemRows / packed_rows;
  return plan.direct_heads < fit ? plan.direct_heads : fit;
}

// Scratch in bytes where appended rows of another type than the cache's wait for a tile of one KV
// head.
constexpr std::uint64_t converted_bytes(const core::Attention& a) {
  const bool appends = a.append.dtype == core::DType::kBf16 ||
                       a.append.dtype == core::DType::kFp16 || a.append.dtype == core::DType::kFp32;
  if (!appends || a.append.dtype == a.kv_dtype) return 0;
  const std::int64_t row = (std::int64_t{a.head_dim} + a.v_head_dim) * core::size_of(a.kv_dtype);
  return static_cast<std::uint64_t>(core::kKeyTile * row);
}

// Of each worker at the start of the workspace: where it stands in the list of
// items.
constexpr std::uint64_t kCursorBytes = 64;

// A partial result of a row in the workspace: maximum, sum, output.
constexpr std::int64_t partial_floats(const core::Attention& a) { return a.v_head_dim + 2; }

// Byte offsets of the arrays, each a multiple of 64.
struct CpuScratch {
  std::int64_t dim_pad, v_pad;  // floats of a padded row
  std::uint64_t q, scores, output, maximum, sum, decay, k, v, staging;
  std::uint64_t fold_output, fold_maximum, fold_sum;
  std::uint64_t converted;
  std::uint64_t amx;    // start of plan/amx_scratch.h's layout, if the plan uses tiles
  std::uint64_t bytes;  // a multiple of 256
};

constexpr CpuScratch lay_out_scratch(const core::Attention& a, const CpuPlan& plan) {
  CpuScratch s{};
  const auto take = [&s](std::int64_t floats) {
    const std::uint64_t at = s.bytes;
    s.bytes += static_cast<std::uint64_t>(core::round_up(floats, 16)) * sizeof(float);
    return at;
  };
  const bool simd_prefill = !plan.prefill_on_amx && plan.q_tile > plan.decode_rows;
  const std::int64_t rows = simd_prefill ? plan.q_tile : plan.decode_rows;
  const std::int64_t direct_rows = plan.direct_heads > 0 ? kDirectItemRows : 0;
  const std::int64_t padded = core::round_up(rows > direct_rows ? rows : direct_rows, kRowGroup);
  s.dim_pad = core::round_up(a.head_dim, 16);
  s.v_pad = core::round_up(a.v_head_dim, 16);
  s.q = take(padded * s.dim_pad);
  s.scores = take(padded * core::kKeyTile);
  s.output = take(padded * s.v_pad);
  s.maximum = take(padded);
  s.sum = take(padded);
  s.decay = take(padded);
  s.k = take(s.dim_pad * core::kKeyTile);
  s.v = take(core::kKeyTile * s.v_pad);
  s.staging = take(16 * s.dim_pad);
  s.fold_output = take(padded * s.v_pad);
  s.fold_maximum = take(padded);
  s.fold_sum = take(padded);
  s.converted = s.bytes;
  // Heads that walk the keys together have tiles open at the same time.
  s.bytes += converted_bytes(a) *
             static_cast<std::uint64_t>(plan.direct_heads > 1 ? plan.direct_heads : 1);
  s.bytes = (s.bytes + 255) / 256 * 256;
  s.amx = s.bytes;
  if (plan.prefill_on_amx) s.bytes += lay_out_amx(a.head_dim, a.v_head_dim, plan.q_tile).bytes;
  return s;
}

}  // namespace tilewise::plan
