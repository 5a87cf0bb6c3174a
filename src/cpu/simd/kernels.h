// The vector kernels as their driver sees them: plain functions that run on the
// best instruction set of isa.h, and the scratch that they share. No Highway
// type crosses this line.
#pragma once

#include <cstdint>

#include "core/visibility.h"
#include "cpu/tiles.h"

namespace tilewise::cpu {

// One worker's memory for one block, 64-byte aligned. Rows are padded with
// zeros to dim_pad and v_pad floats, blocks to a multiple of kRowGroup rows
// (plan/cpu_scratch.h).
struct BodyScratch {
  std::int64_t dim_pad, v_pad;
  float* q;        // [rows][dim_pad]
  float* scores;   // [rows][64]
  float* output;   // [rows][v_pad]
  float* maximum;  // [rows], log2 units
  float* sum;      // [rows]
  float* decay;    // [rows], factor of the output so far under a tile's new maximum
  float* k;        // packed body: [head_dim][64], the tile's keys transposed
  float* v;        // packed body: [64][v_pad]
  float* staging;  // packed body: [16][dim_pad]
};

// The same scratch from row `rows` on: where a second block of a few rows lies.
inline BodyScratch after_rows(BodyScratch s, std::int64_t rows) {
  s.q += rows * s.dim_pad;
  s.scores += rows * kTileKeys;
  s.output += rows * s.v_pad;
  s.maximum += rows;
  s.sum += rows;
  s.decay += rows;
  return s;
}

struct OpenBlock {
  Block block;
  BlockRows rows;
  BodyScratch scratch;
};

// The block's rows of q as float32.
void load_queries(const OpenBlock& open);

// Attend the keys of `keys`, whose begin is a multiple of 64, from nothing:
// maximum, sum and output of every row. For many rows: each tile is converted,
// and K transposed, once for the block ...
void attend_packed(const OpenBlock& open, core::KeyRange keys);
// ... and for few: dot products straight from the cache's rows. `heads` blocks
// of one request, of KV heads that follow each other, take turns at each tile,
// since their rows of a key lie close.
void attend_direct(const OpenBlock* open, std::int64_t heads, core::KeyRange keys);

}  // namespace tilewise::cpu
