// Class P on tiles, the part that runs on any CPU: walks a block's keys in steps, gathers rows and
// visible lanes for the AMX unit, and stores the rows.
#include "cpu/amx/prefill.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/amx/kernel.h"
#include "plan/amx_scratch.h"

namespace tilewise::cpu {
namespace {

constexpr double kLog2e = 1.44269504088896340735992468100189214;

static_assert(amx::kTileKeys == kTileKeys);
static_assert(plan::kAmxBlockRows <= kMaxBlockRows);
// A band's number counts slots of scores.
static_assert(plan::kAmxBlockRows / plan::kAmxBandRows <= plan::amx_step_keys(64, 64) / 32);
static_assert(plan::amx_step_keys(64, 64) <= amx::kMostStepTiles * kTileKeys);
static_assert(plan::amx_step_keys(128, 128) <= amx::kMostStepTiles * kTileKeys);

template <class T>
T* at(char* scratch, std::uint64_t offset) {
  return reinterpret_cast<T*>(scratch + offset);
}

// The last row stands in for rows that pad the last band: it widens no band's view.
std::int64_t row_or_last(const Block& block, std::int64_t row) {
  return row < block.count ? row : block.count - 1;
}

void set_logits(const core::Attention& a, amx::Panels* p) {
  const double scale = std::fabs(static_cast<double>(a.scale));
  p->scale_log2 = static_cast<float>(scale * kLog2e);
  p->shaped = a.softcap > 0.0f || a.alibi != nullptr;
  p->cap_inner = a.softcap > 0.0f ? static_cast<float>(scale / a.softcap) : 0.0f;
  p->cap_outer = static_cast<float>(a.softcap * kLog2e);
}

amx::Panels open_panels(const Block& block, const BlockRows& rows, char* scratch) {
  const core::Attention& a = block.call();
  const plan::AmxScratch s = plan::lay_out_amx(a.head_dim, a.v_head_dim, block.count);
  amx::Panels p{};
  p.head_dim = a.head_dim;
  p.v_head_dim = a.v_head_dim;
  p.rows = static_cast<std::int32_t>(s.rows);
  p.step_keys = static_cast<std::int32_t>(plan::amx_step_keys(a.head_dim, a.v_head_dim));
  set_logits(a, &p);
  p.q = scratch + s.q;
  p.k = scratch + s.k;
  p.v = scratch + s.v;
  p.output = scratch + s.output;
  p.scores = scratch + s.scores;
  p.weights = scratch + s.weights;
  p.maximum = at<float>(scratch, s.maximum);
  p.sum = at<float>(scratch, s.sum);
  p.seen = at<std::uint64_t>(scratch, s.seen);
  p.slopes = at<float>(scratch, s.slopes);
  p.positions = at<std::int64_t>(scratch, s.positions);
  p.odd = at<std::uint16_t>(scratch, s.odd);
  for (std::int64_t i = 0; i < s.rows; ++i) {
    p.slopes[i] = rows.slope_log2[row_or_last(block, i)];
    p.positions[i] = rows.position[row_or_last(block, i)];
  }
  return p;
}

// One block's pass over its keys.
struct Pass {
  const Block& block;
  const BlockRows& rows;
  KeyTile* tile;
  const amx::Kernel& kernel;
  amx::Panels p;
};

void load_queries(const Pass& pass) {
  const void* q[kMaxBlockRows];
  for (std::int64_t i = 0; i < pass.p.rows; ++i) {
    q[i] = q_row(pass.block, row_or_last(pass.block, i));
  }
  pass.kernel.begin_block(pass.p, q, pass.block.call().scale < 0.0f);
}

// Tile `index` of the step. Returns whether any row sees it.
bool load_tile(const Pass& pass, int index, amx::Step* step) {
  KeyTile* tile = pass.tile;
  std::uint64_t* seen = pass.p.seen + std::int64_t{index} * pass.p.rows;
  const std::int64_t first = step->first_key + index * kTileKeys;
  step->odd[index] = 0;
  if (!open_tile(pass.block, pass.rows, first, pass.rows.all.end, tile)) {
    std::memset(seen, 0, static_cast<std::size_t>(pass.p.rows) * sizeof *seen);
    step->all_seen = false;
    pass.kernel.clear_keys(pass.p, index);
    return false;
  }
  const std::int64_t count = pass.block.count;
  std::memcpy(seen, tile->seen, static_cast<std::size_t>(count) * sizeof *seen);
  for (std::int64_t i = count; i < pass.p.rows; ++i) seen[i] = seen[count - 1];
  step->all_seen = step->all_seen && tile->interior();
  step->odd[index] = pass.kernel.load_keys(pass.p, index, tile->k, tile->v, tile->any & ~tile->all);
  return true;
}

void attend_keys(const Pass& pass) {
  const std::int64_t end = pass.rows.all.end;
  const std::int64_t keys = pass.p.step_keys;
  for (std::int64_t key = pass.rows.all.begin / keys * keys; key < end; key += keys) {
    const std::int64_t left = core::divide_up(end - key, kTileKeys);
    const std::int64_t most = keys / kTileKeys;
    amx::Step step{key, static_cast<std::int32_t>(left < most ? left : most), true, {}};
    bool any = false;
    for (int i = 0; i < step.tiles; ++i) any |= load_tile(pass, i, &step);
    if (any) pass.kernel.attend_step(pass.p, step);
  }
}

void store_rows(const Pass& pass) {
  const amx::Panels& p = pass.p;
  const float factor = p.shaped ? 1.0f : p.scale_log2;
  amx::OutputRows out{};
  out.fp32 = pass.block.call().o_dtype == core::DType::kFp32;
  for (std::int64_t row = 0; row < pass.block.count; ++row) {
    const RowEnd end = end_row(pass.block, row, p.maximum[row] * factor, p.sum[row]);
    out.factor[out.count] = end.factor;
    out.row[out.count] = end.output;
    ++out.count;
    if (out.count < 16 && row + 1 < pass.block.count) continue;
    pass.kernel.store_rows(p, static_cast<int>(row / 16), out);
    out.count = 0;
  }
}

}  // namespace

void amx_prefill(const Block& block, const BlockRows& rows, KeyTile* tile, char* scratch,
                 const amx::Kernel& kernel) {
  const Pass pass{block, rows, tile, kernel, open_panels(block, rows, scratch)};
  load_queries(pass);
  kernel.open_tiles();
  attend_keys(pass);
  kernel.close_tiles();
  store_rows(pass);
}

}  // namespace tilewise::cpu
