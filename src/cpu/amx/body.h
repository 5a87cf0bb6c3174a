// One step of a block of class P on tiles: for every band of 32 rows S^T = K Q^T, probabilities
// down registers, O^T += V^T P^T. While the probabilities of a band are computed, tile products of
// the next band's scores and of the last band's output run between them.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/amx/block.h"
#include "cpu/amx/kernel.h"
#include "cpu/amx/odd_values.h"
#include "cpu/amx/products.h"

namespace tilewise::cpu::amx {
namespace {

template <class Tiles>
class StepBody {
 public:
  StepBody(const Panels& p, const Step& step)
      : p_(p), step_(step), g_(p), factor_(p.shaped ? 1.0f : p.scale_log2) {}

  void run() {
    const int bands = p_.rows / kBandRows;
    Blocks before{0, 0};
    Blocks now = seen_blocks(0);
    score_first_band(now);
    for (int band = 0; band < bands; ++band) {
      const Blocks after = band + 1 < bands ? seen_blocks(band + 1) : Blocks{0, 0};
      ProductQueue<Tiles> queue(g_, band, before, after);
      if (!now.empty()) attend_band(band, now, &queue);
      while (queue.advance(Blocks{0, 0})) {
      }
      add_odd(band - 1, before);
      before = now;
      now = after;
    }
    ProductQueue<Tiles> queue(g_, bands, before, Blocks{0, 0});
    while (queue.advance(Blocks{0, 0})) {
    }
    add_odd(bands - 1, before);
  }

 private:
  // Keys of a block that 16 rows see, a lane each.
  __m512i seen_bits(int group, int block) const {
    const std::uint64_t* words = p_.seen + std::int64_t{p_.rows} * (block / 2) + group * kTileRows;
    const __m512i shift = _mm512_set1_epi64(block % 2 * kBlockKeys);
    const __m256i low = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(_mm512_load_si512(words), shift));
    const __m256i high =
        _mm512_cvtepi64_epi32(_mm512_srlv_epi64(_mm512_load_si512(words + 8), shift));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }

  // From the first to the last block of the step that some row of the band sees.
  Blocks seen_blocks(int band) const {
    const int blocks = step_.tiles * (kTileKeys / kBlockKeys);
    if (step_.all_seen) return {0, blocks};
    Blocks seen{blocks, 0};
    for (int block = 0; block < blocks; ++block) {
      const __m512i bits =
          _mm512_or_si512(seen_bits(2 * band, block), seen_bits(2 * band + 1, block));
      if (_mm512_test_epi32_mask(bits, bits) == 0) continue;
      if (block < seen.begin) seen.begin = block;
      seen.end = block + 1;
    }
    return seen;
  }

  void score_first_band(Blocks blocks) const {
    ScoreProducts<Tiles> scores(g_, 0, blocks);
    while (scores.left()) scores.advance();
  }

  // 16 rows' scores of a block as logits, -inf where a row does not see the key. Returns the
  // highest of `top` and them.
  __m512 open_scores(int group, int block, __m512 top) const {
    char* scores = g_.scores(group / 2, block) + group % 2 * (kSlotBytes / 2);
    if (p_.shaped) {
      const Logits logits{p_.scale_log2, p_.cap_inner, p_.cap_outer, p_.slopes + group * kTileRows,
                          p_.positions + group * kTileRows};
      shape_scores(logits, step_.first_key + block * kBlockKeys, scores);
    }
    if (!step_.all_seen) hide_scores(seen_bits(group, block), scores);
    return highest_score(scores, top);
  }

  void rescale(int group, __m512 alpha) const {
    float* at = reinterpret_cast<float*>(g_.output(group));
    const int columns = g_.v_tiles * kTileRows;
    for (int i = 0; i < columns; ++i, at += kTileRows) {
      _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), alpha));
    }
  }

  StepState enter(int group, __m512 top) const {
    StepState state;
    if (enter_step(top, factor_, p_.maximum + group * kTileRows, &state)) {
      rescale(group, state.alpha);
    }
    return state;
  }

  void attend_band(int band, Blocks now, ProductQueue<Tiles>* queue) const {
    // Turns of a block: its maxima take about as long as two times four probabilities.
    constexpr int kTopTurns = 2, kTakeTurns = kBlockKeys / 4;
    const int turns = now.count() * (kTopTurns + kTakeTurns);
    __m512 top[2] = {_mm512_set1_ps(-kInfinity), _mm512_set1_ps(-kInfinity)};
    for (int block = now.begin; block < now.end; ++block) {
      for (int side = 0; side < 2; ++side) {
        queue->take_turn(turns, now);
        top[side] = open_scores(2 * band + side, block, top[side]);
      }
    }
    StepState first = enter(2 * band, top[0]);
    StepState second = enter(2 * band + 1, top[1]);
    const __m512 factor = _mm512_set1_ps(factor_);
    for (int block = now.begin; block < now.end; ++block) {
      const char* scores = g_.scores(band, block);
      char* tile = g_.weights(band, 0) + block * kTileBytes;
      char* second_tile = g_.weights(band, 1) + block * kTileBytes;
      for (int key = 0; key < kBlockKeys; key += 4) {
        queue->take_turn(turns, Blocks{block, now.end});
        take_keys(scores + key * 64, factor, &first, tile + key * 32);
        take_keys(scores + kSlotBytes / 2 + key * 64, factor, &second, second_tile + key * 32);
      }
    }
    leave_step(first, p_.sum + 2 * band * kTileRows);
    leave_step(second, p_.sum + (2 * band + 1) * kTileRows);
  }

  void add_odd(int band, Blocks blocks) const {
    if (blocks.empty()) return;
    for (int tile = blocks.begin / 2; tile <= (blocks.end - 1) / 2; ++tile) {
      for (std::uint64_t left = step_.odd[tile]; left != 0; left &= left - 1) {
        const int key = tile * kTileKeys + __builtin_ctzll(left);
        if (key < blocks.begin * kBlockKeys || key >= blocks.end * kBlockKeys) continue;
        add_odd_key(2 * band, key);
        add_odd_key(2 * band + 1, key);
      }
    }
  }

  void add_odd_key(int group, int key) const {
    const int block = key / kBlockKeys;
    const __m512i bit = _mm512_set1_epi32(static_cast<int>(1u << (key % kBlockKeys)));
    const __mmask16 seen = _mm512_test_epi32_mask(seen_bits(group, block), bit);
    const __m512 weights =
        tile_weights(g_.weights(group / 2, group % 2) + block * kTileBytes, key % kBlockKeys);
    add_odd_row(p_.odd + std::int64_t{key} * p_.v_head_dim, p_.v_head_dim, weights, seen,
                g_.output(group));
  }

  const Panels& p_;
  const Step& step_;
  const Geometry g_;
  const float factor_;
};

template <class Tiles>
void run_step(const Panels& p, const Step& step) {
  StepBody<Tiles>(p, step).run();
}

template <class Tiles>
constexpr Kernel kernel_of() {
  return {Tiles::open,  Tiles::close,    begin_panels, load_panels,
          clear_panels, run_step<Tiles>, store_panels};
}

}  // namespace
}  // namespace tilewise::cpu::amx
