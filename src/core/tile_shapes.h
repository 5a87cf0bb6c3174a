// Numbers of the CUDA bodies that planner and kernels must agree on: instances, tiles, shared
// memory. Nothing here decides bits but the key streams of a tile.
#pragma once

#include <cstdint>

#include "core/host_device.h"
#include "core/rows.h"

namespace tilewise::core {

// Head dims that tensor-core bodies are compiled for; a call runs the next larger one.
constexpr std::int32_t kInstanceDims[] = {32, 64, 96, 128, 192, 256};

// 0: none.
constexpr std::int32_t instance_dim(std::int32_t head_dim, std::int32_t v_head_dim) {
  const std::int32_t wanted = head_dim > v_head_dim ? head_dim : v_head_dim;
  for (const std::int32_t dim : kInstanceDims) {
    if (wanted <= dim) return dim;
  }
  return 0;
}

// Class D on tensor cores: a block has 4 warps, each a stream of 16 keys of every tile of 64 with a
// ring of its own. The streams are part of the bits.
constexpr std::int32_t kDecodeWarps = 4;
constexpr std::int32_t kDecodeThreads = 32 * kDecodeWarps;
constexpr std::int32_t kStreamKeys = 16;
static_assert(kDecodeWarps * kStreamKeys == kKeyTile);

// Tiles that a stream's ring holds at most.
constexpr std::int32_t kMostStages = 4;

// Columns of the output that the warps' results are folded by at a time: bounds the buffer.
constexpr std::int32_t fold_slab(std::int32_t dim) {
  return dim <= 64 ? dim : dim % 64 == 0 ? 64 : 48;
}
// Rows of the buffer are a few floats apart, so that a warp's stores meet different banks.
constexpr std::int32_t kFoldPad = 4;

// Most packed rows (q rows x heads of a group) of a block: what accumulators leave room for without
// spills (rows x dim of 3,072 spills).
constexpr std::int32_t most_decode_rows(std::int32_t dim) {
  return dim <= 64 ? 32 : dim <= 128 ? 16 : 8;
}

// Byte offsets in the shared memory of a decode block.
struct DecodeShared {
  std::int32_t ring, q, fold, stats, rows, holes, run, received, bytes;
};

// `tile_rows`: packed rows of the block. `stages`: of the ring. `received_floats`: what other
// blocks of a cluster push to this one.
constexpr DecodeShared decode_shared(std::int32_t dim, std::int32_t tile_rows, std::int32_t stages,
                                     std::int32_t received_floats) {
  DecodeShared s{};
  s.q = s.ring + stages * kDecodeWarps * 2 * kStreamKeys * dim * 2;
  s.fold = s.q + tile_rows * dim * 2;
  s.stats = s.fold + kDecodeWarps * tile_rows * (fold_slab(dim) + kFoldPad) * 4;
  s.rows = s.stats + kDecodeWarps * tile_rows * 2 * 4;
  s.holes = s.rows + tile_rows * 64;
  s.run = s.received =
      s.holes + kDecodeWarps * kMostStages * 4;  // a block of a cluster keeps no fold of its own
  const std::int32_t run_floats = tile_rows * (dim + 4);
  s.bytes = s.run + 4 * (received_floats > run_floats ? received_floats : run_floats);
  return s;
}

// Class P on tensor cores: packed rows of a block, keys of a tile (part of the bits: tiles stand at
// absolute multiples), warps along rows and along output columns, stages of the ring of K and V
// tiles, and blocks that shall fit an SM together. With one stage every shape fits 99 KB of shared
// memory.
struct PrefillShape {
  std::int32_t rows, keys, warps_m, warps_d, stages, blocks;

  constexpr std::int32_t threads() const { return 32 * warps_m * warps_d; }
};

constexpr PrefillShape prefill_shape(std::int32_t dim) {
  return dim <= 128 ? PrefillShape{128, 64, 4, 1, 2, 2} : PrefillShape{64, 64, 4, 1, 1, 2};
}

// The same with another number of stages, which decides no bits.
constexpr PrefillShape with_stages(PrefillShape shape, std::int32_t stages) {
  shape.stages = stages;
  return shape;
}

// A shape as a type, for kernels.
template <std::int32_t kDim, std::int32_t kStages>
struct PlannedPrefill {
  static constexpr PrefillShape kShape = with_stages(prefill_shape(kDim), kStages);
};

constexpr std::int32_t kPrefillRowBytes = 32;  // what a block keeps of a row's visibility

// Byte offsets in the shared memory of a prefill block. A stage has a tile of K, then one of V.
struct PrefillShared {
  std::int32_t q, ring, rows, bytes;
};

constexpr PrefillShared prefill_shared(std::int32_t dim, const PrefillShape& shape) {
  PrefillShared s{};
  s.ring = s.q + shape.rows * dim * 2;
  s.rows = s.ring + shape.stages * 2 * shape.keys * dim * 2;
  s.bytes = s.rows + shape.rows * kPrefillRowBytes;
  return s;
}

// The SIMT body, of both classes: a block takes up to 16 packed rows, each of its 4 warps every
// fourth one, through tiles of keys of which it holds 64 columns at a time as floats. 16 rows of
// 512 columns are 64 accumulators a thread. The pad lets lanes of different keys meet different
// banks.
constexpr std::int32_t kSimtRows = 16;
constexpr std::int32_t kSimtWarps = 4;
constexpr std::int32_t kSimtThreads = 32 * kSimtWarps;
constexpr std::int32_t kSimtSlice = 64;
constexpr std::int32_t kSimtPad = 4;
constexpr std::int32_t kSimtRowBytes = 80;  // what a block keeps of a row besides its columns

// Byte offsets in the shared memory of a SIMT block; at most 89,344 bytes: any device has room.
struct SimtShared {
  std::int32_t tile, weights, k_rows, v_rows, rows, q, run, bytes;
};

// `folds`: class D, whose blocks keep a running fold of chunks.
constexpr SimtShared simt_shared(std::int32_t head_dim, std::int32_t v_head_dim, bool folds) {
  constexpr std::int32_t kKeys = static_cast<std::int32_t>(kKeyTile);
  SimtShared s{};
  s.weights = s.tile + kKeys * (kSimtSlice + kSimtPad) * 4;
  s.k_rows = s.weights + kSimtRows * kKeys * 4;
  s.v_rows = s.k_rows + kKeys * 8;
  s.rows = s.v_rows + kKeys * 8;
  s.q = s.rows + kSimtRows * kSimtRowBytes;
  s.run = s.q + kSimtRows * head_dim * 4;
  s.bytes = s.run + (folds ? kSimtRows * v_head_dim * 4 : 0);
  return s;
}

}  // namespace tilewise::core
