// What the AMX unit offers to the body of class P, as plain data and functions: nothing here is
// inline, since the unit is compiled for CPUs that need not be there. Call only if amx_available().
#pragma once

#include <cstdint>

namespace tilewise::cpu::amx {

constexpr int kTileKeys = 64;
constexpr int kMostStepTiles = 8;

// One block of query rows on its way over the keys. Arrays as in plan/amx_scratch.h, 64-byte
// aligned.
struct Panels {
  std::int32_t head_dim, v_head_dim;
  std::int32_t rows;       // padded: a multiple of 32
  std::int32_t step_keys;  // a multiple of 64
  float scale_log2;        // > 0: the sign of a negative scale is in q
  // logit = cap_outer * tanh(q.k * cap_inner) - slope * |position - key|, all in log2 units, if
  // `shaped`; then the scores count as scaled. cap_outer 0: no cap.
  bool shaped;
  float cap_inner, cap_outer;
  char *q, *k, *v, *output, *scores, *weights;
  float *maximum, *sum;  // raw maximum (before scale_log2 unless shaped)
  std::uint64_t* seen;   // [tile of the step][row]: lanes that the row sees
  float* slopes;
  std::int64_t* positions;
  std::uint16_t* odd;  // [key of the step][v_head_dim]: rows of V that are not all finite
};

struct Step {
  std::int64_t first_key;
  std::int32_t tiles;
  bool all_seen;                      // every row sees every key: `seen` is not read
  std::uint64_t odd[kMostStepTiles];  // lanes whose V row is in Panels::odd
};

// Where up to 16 rows of a group go, and what their output as accumulated is multiplied by.
struct OutputRows {
  std::int32_t count;
  bool fp32;  // else bf16
  float factor[16];
  void* row[16];
};

// The unit's functions. A table, so that tests can run the body on emulated tiles.
struct Kernel {
  // A worker's thread enters and leaves tile state around a block.
  void (*open_tiles)();
  void (*close_tiles)();

  void (*begin_block)(const Panels& p, const void* const* q_rows, bool negative_scale);

  // Packs 64 keys as tile `tile` of the step. Returns those of `suspects` whose V row is not all
  // finite; what is not finite there is left out of the tile products and added to the rows that
  // see it.
  std::uint64_t (*load_keys)(const Panels& p, int tile, const void* const* k_rows,
                             const void* const* v_rows, std::uint64_t suspects);
  // The same for keys that nobody sees.
  void (*clear_keys)(const Panels& p, int tile);

  void (*attend_step)(const Panels& p, const Step& step);

  // Stores rows [16 * group, 16 * group + out.count), normalised.
  void (*store_rows)(const Panels& p, int group, const OutputRows& out);
};

extern const Kernel kHardwareKernel;

}  // namespace tilewise::cpu::amx
