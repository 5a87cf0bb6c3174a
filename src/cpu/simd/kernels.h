// The vector kernels as their driver sees them: plain functions that run on the best instruction
// set of isa.h, and the scratch that they share. No Highway type crosses this line.
#pragma once

#include <cstdint>

#include "core/visibility.h"
#include "cpu/tiles.h"

namespace tilewise::cpu {

// One worker's memory for one block, 64-byte aligned. Rows are padded with zeros to dim_pad and
// v_pad floats, blocks to a multiple of kRowGroup rows (plan/cpu_scratch.h).
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

// The block's rows of q as float32.
void load_queries(const Block& block, const BodyScratch& scratch);

// Attend the keys of `keys`, whose begin is a multiple of 64, from nothing: maximum, sum and output
// of every row. For many rows: each tile is converted, and K transposed, once for the block ...
void attend_packed(const Block& block, const BlockRows& rows, core::KeyRange keys,
                   const BodyScratch& scratch);
// ... and for few: dot products straight from the cache's rows.
void attend_direct(const Block& block, const BlockRows& rows, core::KeyRange keys,
                   const BodyScratch& scratch);

}  // namespace tilewise::cpu
