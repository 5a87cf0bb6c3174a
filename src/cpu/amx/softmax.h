// The vector half of the body: online softmax over scores that lie [key][16 query rows], so that every
// step runs down registers. Base 2 throughout. A row's result depends on its own scores alone, and keys
// whose probability is 0 leave it as it is.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/amx/pack.h"

namespace tilewise::cpu::amx {
namespace {

constexpr int kBlockKeys = 32;  // keys of a tile product over P

// 2^x, relative error 1e-7; exact at integers, 0 at -inf.
inline __m512 exp2_lanes(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // [0, 1)
  __m512 y = _mm512_set1_ps(0.0018671301659196615f);
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.009017029777169228f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.05579991266131401f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.24016444385051727f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.6931512951850891f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, x);
}

inline const float* score_row(const char* scores, int key) {
  return reinterpret_cast<const float*>(scores + key * 64);
}

inline __m512 highest_score(const char* scores, int begin, int end) {
  __m512 top[4];
  for (auto& t : top) t = _mm512_set1_ps(-__builtin_inff());
  for (int key = begin; key < end; key += 4) {
    for (int i = 0; i < 4; ++i) top[i] = _mm512_max_ps(_mm512_load_ps(score_row(scores, key + i)), top[i]);
  }
  return _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
}

// One 16-row group's state in registers while a step passes.
struct RowState {
  __m512 reference;  // what scores are taken relative to: the maximum, 0 while there is none
  __m512 alpha;      // factor for what was accumulated before this step
  __m512 sums[4];
};

// Takes the step's highest scores into `max` and returns the state that its probabilities start from.
inline RowState enter_step(__m512 top, float scale, float* max) {
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  const __m512 before = _mm512_load_ps(max);
  const __m512 now = _mm512_max_ps(top, before);
  _mm512_store_ps(max, now);
  RowState state;
  state.reference = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(now, none, _CMP_NEQ_UQ), now);
  const __mmask16 moved = _mm512_cmp_ps_mask(now, before, _CMP_NEQ_UQ);
  const __m512 drop = _mm512_mul_ps(_mm512_sub_ps(before, state.reference), _mm512_set1_ps(scale));
  state.alpha = _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), moved, exp2_lanes(drop));
  for (auto& sum : state.sums) sum = _mm512_setzero_ps();
  return state;
}

// Probabilities of 32 keys: float32 into the sums, bf16 into a B tile (pairs of keys interleaved).
inline void take_block(const char* scores, float scale, RowState& state, char* tile) {
  const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23,
                                         7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512 factor = _mm512_set1_ps(scale);
  for (int key = 0; key < kBlockKeys; key += 4) {
    __m512 p[4];
    for (int i = 0; i < 4; ++i) {
      const __m512 s = _mm512_load_ps(score_row(scores, key + i));
      p[i] = exp2_lanes(_mm512_mul_ps(_mm512_sub_ps(s, state.reference), factor));
      state.sums[i] = _mm512_add_ps(state.sums[i], p[i]);
    }
    for (int i = 0; i < 4; i += 2) {
      const auto packed = (__m512i)_mm512_cvtne2ps_pbh(p[i + 1], p[i]);
      _mm512_store_si512(tile + (key + i) / 2 * 64, _mm512_permutexvar_epi16(pairs, packed));
    }
  }
}

inline void leave_step(const RowState& state, float* sum) {
  const __m512 added = _mm512_add_ps(_mm512_add_ps(state.sums[0], state.sums[1]),
                                     _mm512_add_ps(state.sums[2], state.sums[3]));
  _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_load_ps(sum), state.alpha, added));
}

}  // namespace
}  // namespace tilewise::cpu::amx
