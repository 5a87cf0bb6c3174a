// The tile half of the body, cut into steps of at most four products so that the vector half can
// run between them: a product occupies the tile unit for 16 cycles, and only what stands close by
// in program order overlaps with it (measured: 16 products at a stretch hide nothing, 4 hide a
// third). Which step runs when decides no bit.
#pragma once

#include <cstdint>

#include "cpu/amx/kernel.h"
#include "cpu/amx/pack.h"
#include "cpu/amx/softmax.h"

namespace tilewise::cpu::amx {
namespace {

constexpr int kBandRows = 32;
constexpr std::int64_t kSlotBytes = 4 * kTileBytes;  // scores of 32 keys and a band

struct Blocks {
  int begin, end;  // of 32 keys; empty if begin >= end
  bool empty() const { return begin >= end; }
  int count() const { return empty() ? 0 : end - begin; }
};

// Sizes of a block and addresses in its panels.
struct Geometry {
  const Panels& p;
  int q_tiles, v_tiles, step_blocks;

  explicit Geometry(const Panels& panels)
      : p(panels),
        q_tiles((panels.head_dim + kTileDepth - 1) / kTileDepth),
        v_tiles((panels.v_head_dim + kTileRows - 1) / kTileRows),
        step_blocks(panels.step_keys / kBlockKeys) {}

  char* q(int group) const { return p.q + std::int64_t{kTileBytes} * group * q_tiles; }
  char* k(int group) const { return p.k + std::int64_t{kTileBytes} * group * q_tiles; }
  // Tiles of V^T lie [16 output columns][block]: a product over keys reads them in order.
  char* v(int tile) const { return p.v + std::int64_t{kTileBytes} * tile * step_blocks; }
  char* output(int group) const { return p.output + std::int64_t{kTileBytes} * group * v_tiles; }
  // Slots go round: the next band's block takes the slot of this band's block before it.
  char* scores(int band, int block) const {
    const int slot = block - band;
    return p.scores + kSlotBytes * (slot < 0 ? slot + step_blocks + 1 : slot);
  }
  char* weights(int band, int side) const {
    return p.weights + std::int64_t{kTileBytes} * (band % 2 * 2 + side) * step_blocks;
  }
};

// S^T of a band, block by block of 32 keys.
template <class Tiles>
class ScoreProducts {
 public:
  ScoreProducts(const Geometry& g, int band, Blocks blocks)
      : g_(g),
        band_(band),
        block_(blocks.begin),
        end_(blocks.empty() ? blocks.begin : blocks.end) {}

  bool left() const { return block_ < end_; }
  int block() const { return block_; }
  bool inside() const { return depth_ != 0; }

  // One step; four of them at D = 128 make a block.
  void advance() {
    if (depth_ == 0) start();
    Tiles::template load<4>(k_);
    Tiles::template load<6>(q_);
    Tiles::template load<5>(k_ + across_);
    Tiles::template load<7>(q_ + across_);
    Tiles::template multiply<0, 4, 6>();
    Tiles::template multiply<1, 5, 6>();
    Tiles::template multiply<2, 4, 7>();
    Tiles::template multiply<3, 5, 7>();
    k_ += kTileBytes;
    q_ += kTileBytes;
    if (++depth_ == depths_) store();
  }

 private:
  void start() {
    k_ = g_.k(2 * block_);
    q_ = g_.q(2 * band_);
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template zero<2>();
    Tiles::template zero<3>();
  }

  void store() {
    char* to = g_.scores(band_, block_);
    Tiles::template store<0>(to);
    Tiles::template store<1>(to + kTileBytes);
    Tiles::template store<2>(to + 2 * kTileBytes);
    Tiles::template store<3>(to + 3 * kTileBytes);
    depth_ = 0;
    ++block_;
  }

  const Geometry& g_;
  const int band_;
  int block_;
  const int end_, depths_ = g_.q_tiles;
  const std::int64_t across_ = std::int64_t{kTileBytes} * g_.q_tiles;
  int depth_ = 0;
  const char *k_ = nullptr, *q_ = nullptr;
};

// O^T += V^T P^T of a band, two tiles of output columns at a time.
template <class Tiles>
class OutputProducts {
 public:
  OutputProducts(const Geometry& g, int band, Blocks blocks)
      : g_(g), band_(band), blocks_(blocks), column_(blocks.empty() ? g.v_tiles : 0) {}

  bool left() const { return column_ < columns_; }
  int columns_done() const { return column_; }
  bool inside() const { return block_ != blocks_.begin; }

  void advance() {
    if (column_ + 1 < columns_) {
      advance_columns<true>();
    } else {
      advance_columns<false>();
    }
  }

 private:
  void start() {
    const std::int64_t at = std::int64_t{kTileBytes} * block_;
    o0_ = g_.output(2 * band_) + column_ * kTileBytes;
    o1_ = g_.output(2 * band_ + 1) + column_ * kTileBytes;
    v_ = g_.v(column_) + at;
    p_ = g_.weights(band_, 0) + at;
  }

  template <bool kTwo>
  void advance_columns() {
    if (block_ == blocks_.begin) {
      start();
      Tiles::template load<0>(o0_);
      Tiles::template load<2>(o1_);
      if (kTwo) Tiles::template load<1>(o0_ + kTileBytes);
      if (kTwo) Tiles::template load<3>(o1_ + kTileBytes);
    }
    Tiles::template load<4>(v_);
    Tiles::template load<6>(p_);
    if (kTwo) Tiles::template load<5>(v_ + across_);
    Tiles::template load<7>(p_ + across_);
    Tiles::template multiply<0, 4, 6>();
    if (kTwo) Tiles::template multiply<1, 5, 6>();
    Tiles::template multiply<2, 4, 7>();
    if (kTwo) Tiles::template multiply<3, 5, 7>();
    v_ += kTileBytes;
    p_ += kTileBytes;
    if (++block_ < blocks_.end) return;
    Tiles::template store<0>(o0_);
    Tiles::template store<2>(o1_);
    if (kTwo) Tiles::template store<1>(o0_ + kTileBytes);
    if (kTwo) Tiles::template store<3>(o1_ + kTileBytes);
    block_ = blocks_.begin;
    column_ += 2;
  }

  const Geometry& g_;
  const int band_, columns_ = g_.v_tiles;
  const Blocks blocks_;
  const std::int64_t across_ = std::int64_t{kTileBytes} * g_.step_blocks;
  int column_, block_ = blocks_.begin;
  char *o0_ = nullptr, *o1_ = nullptr;
  const char *v_ = nullptr, *p_ = nullptr;
};

// The scores of the band after and the output of the band before, in one row of steps, in
// proportion.
template <class Tiles>
class ProductQueue {
 public:
  ProductQueue(const Geometry& g, int band, Blocks before, Blocks after)
      : scores_(g, band + 1, after),
        output_(g, band - 1, before),
        score_blocks_(after.count()),
        columns_(g.v_tiles),
        first_block_(after.begin),
        steps_(after.count() * g.q_tiles +
               (before.empty() ? 0 : (g.v_tiles + 1) / 2 * before.count())) {}

  // Runs the share of the steps that falls to one of `turns` turns of the vector half, so that the
  // tile unit is never far behind nor idle.
  [[gnu::always_inline]] void take_turn(int turns, Blocks held) {
    for (owed_ += steps_; owed_ >= turns; owed_ -= turns) {
      if (!advance(held)) {
        owed_ = 0;
        return;
      }
    }
  }

  // One step, or false if there is none that may run: blocks [held.begin, held.end) of the present
  // band are still wanted in their slots.
  [[gnu::always_inline]] bool advance(Blocks held) {
    if (output_.left() && !scores_.inside() && (output_.inside() || output_first(held))) {
      output_.advance();
      return true;
    }
    if (!scores_.left() || !free_slot(held)) return false;
    scores_.advance();
    return true;
  }

 private:
  // The block before, of the present band, gave up the slot or never had it.
  bool free_slot(Blocks held) const {
    const int owner = scores_.block() - 1;
    return scores_.inside() || owner < held.begin || owner >= held.end;
  }
  bool output_first(Blocks held) const {
    const int done = scores_.block() - first_block_;
    return !scores_.left() || !free_slot(held) ||
           output_.columns_done() * score_blocks_ < done * columns_;
  }

  ScoreProducts<Tiles> scores_;
  OutputProducts<Tiles> output_;
  const int score_blocks_, columns_, first_block_, steps_;
  int owed_ = 0;
};

}  // namespace
}  // namespace tilewise::cpu::amx
