// What the attention bodies walk: a block of packed rows of one request and KV head, and tiles of
// 64 keys at absolute multiples of 64, with the address of every key's row and the lanes that each
// row of the block sees. Visibility, masks, page holes and appended rows end here: a body reads 64
// rows and 64 bits a row, and keys that no row of the block sees point to a row of zeros.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/rows.h"
#include "core/types.h"
#include "core/visibility.h"
#include "cpu/key_source.h"

namespace tilewise::cpu {

constexpr std::int64_t kMaxHeadDim = 512;
constexpr std::int64_t kMaxBlockRows = 256;
constexpr std::int64_t kTileKeys = core::kKeyTile;
static_assert(kTileKeys == 64, "the lanes of a tile are the bits of a uint64_t");

// Packed row p of a request and KV head is query row p / group of head kv_head * group + p % group,
// so that the heads of a group share every row of K and V.
struct Block {
  KeySource keys;
  std::int32_t kv_head;
  std::int64_t first, count;  // packed rows; count <= kMaxBlockRows
  void* converted;  // 64 rows of K and V, where appended rows of another type are converted

  const core::Attention& call() const { return *keys.call; }
  std::int64_t query_row(std::int64_t row) const { return (first + row) / call().group(); }
  std::int64_t head(std::int64_t row) const {
    return kv_head * call().group() + (first + row) % call().group();
  }
};

// What each row of a block sees and where it stands.
struct BlockRows {
  core::KeyRange all;     // keys that some row may see
  core::KeyRange common;  // keys that every row sees but for masks and holes
  bool masked;
  core::KeyRange range[kMaxBlockRows];
  core::MaskRow mask[kMaxBlockRows];
  std::int64_t position[kMaxBlockRows];
  float slope_log2[kMaxBlockRows];  // ALiBi slope * log2(e); 0 without
};

void open_rows(const Block& block, BlockRows* rows);

// Row `row` (0 .. block.count) of q, in a.q_dtype.
const void* q_row(const Block& block, std::int64_t row);

struct KeyTile {
  std::int64_t first;      // key of lane 0
  std::uint64_t any, all;  // lanes that some row, that every row sees
  // Lane l's rows of K and V, in the cache's type, head_dim and v_head_dim elements. A lane outside
  // `any` points to zeros. Rows may end at the end of memory: read no element past the last.
  const void* k[kTileKeys];
  const void* v[kTileKeys];
  std::uint64_t seen[kMaxBlockRows];  // lanes that the row sees; filled for every row of the block

  // Every row sees all 64 lanes: no test is needed.
  bool interior() const { return all == ~std::uint64_t{0}; }
  // Every row sees the same lanes: what a lane outside holds cannot reach any row.
  bool uniform() const { return any == all; }
};

// Fills `tile` with the keys from `first` (a multiple of 64), cut at `end`. False if no row of the
// block sees any of them: the tile must then be passed over.
bool open_tile(const Block& block, const BlockRows& rows, std::int64_t first, std::int64_t end,
               KeyTile* tile);

// One row's state: maximum of the logits in log2 units, sum of exp2(x - maximum), and the output
// accumulated with those weights. Nothing seen: {-inf, 0, zeros}.
struct RowState {
  float maximum, sum;
  const float* output;  // v_head_dim
};

// Where a row's output goes and what it is multiplied by on the way: its 1 / sum, after the head's
// sink. Stores the row's lse.
struct RowEnd {
  float factor;
  void* output;
};
RowEnd end_row(const Block& block, std::int64_t row, float maximum, float sum);

// Normalises, lets the head's sink in, and stores o and lse of a row of the block.
void finish_row(const Block& block, std::int64_t row, const RowState& state);

}  // namespace tilewise::cpu
