// Layout of one worker's scratch for a block of class P on bf16 tiles: sizes for the planner,
// offsets for the body.
#pragma once

#include <cstdint>

#include "core/rows.h"

namespace tilewise::plan {

// Rows of a block at most. K and V are packed once a block: 128 rows cost 8 to 12 % of the speed at
// 2,048 keys.
constexpr std::int64_t kAmxBlockRows = 256;

// Rows whose scores and probabilities lie in registers and scratch together: two tiles across.
constexpr std::int64_t kAmxBandRows = 32;

// Keys of one online softmax step, at absolute multiples. Part of the bits. Long steps load and
// store the output tiles and rescale them less often (512 against 256 keys: 7 to 9 % faster at D =
// 64 and 128, 1,024 as fast as 512); above head dims of 256 the packed step would leave the L2.
constexpr std::int64_t amx_step_keys(std::int64_t head_dim, std::int64_t v_head_dim) {
  return head_dim <= 256 && v_head_dim <= 256 ? 512 : 256;
}

// Byte offsets, each a multiple of 64.
struct AmxScratch {
  std::int64_t rows;  // padded to whole bands
  std::uint64_t q, k, v, output, scores, weights, maximum, sum, seen, slopes, positions, odd;
  std::uint64_t bytes;  // a multiple of 256
};

// For blocks of at most `rows` rows.
constexpr AmxScratch lay_out_amx(std::int64_t head_dim, std::int64_t v_head_dim,
                                 std::int64_t rows) {
  constexpr std::int64_t kTile = 1024;
  AmxScratch s{};
  const auto take = [&s](std::int64_t bytes) {
    const std::uint64_t at = s.bytes;
    s.bytes += static_cast<std::uint64_t>(core::round_up(bytes, 64));
    return at;
  };
  s.rows = core::round_up(rows, kAmxBandRows);
  const std::int64_t keys = amx_step_keys(head_dim, v_head_dim);
  const std::int64_t q_tiles = core::divide_up(head_dim, 32);
  const std::int64_t v_tiles = core::divide_up(v_head_dim, 16);
  s.q = take(s.rows / 16 * q_tiles * kTile);
  s.k = take(keys / 16 * q_tiles * kTile);
  s.v = take(keys / 32 * v_tiles * kTile);
  s.output = take(s.rows / 16 * v_tiles * kTile);
  // One block of 32 keys more than a step: the next band's scores arrive while this one's are read.
  s.scores = take((keys / 32 + 1) * 4 * kTile);
  s.weights = take(2 * keys / 32 * 2 * kTile);  // of this band and of the one before
  s.maximum = take(s.rows * 4);
  s.sum = take(s.rows * 4);
  s.seen = take(keys / 64 * s.rows * 8);
  s.slopes = take(s.rows * 4);
  s.positions = take(s.rows * 8);
  s.odd = take(keys * v_head_dim * 2);
  s.bytes = (s.bytes + 255) / 256 * 256;
  return s;
}

}  // namespace tilewise::plan
