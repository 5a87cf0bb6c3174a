// The vector half of the body: online softmax over scores that lie [key][16 query rows], so that
// every step runs down registers. Base 2 throughout. A row's result depends on its own scores
// alone, and keys whose probability is 0 leave it as it is.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/amx/pack.h"

namespace tilewise::cpu::amx {
namespace {

constexpr int kBlockKeys = 32;  // keys of a tile product over probabilities
constexpr float kInfinity = __builtin_inff();

// 2^x, relative error 1e-7; exact at integers, 0 at -inf, NaN for NaN. Coefficients: minimax of the
// relative error on [0, 1] with p(0) = 1.
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

// tanh(x), absolute error 2e-7 and relative error 3e-7 below 0.6; +-1 far out.
inline __m512 tanh_lanes(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 magnitude = _mm512_abs_ps(x);
  const __m512 t = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(-0.005895156413316727f);
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.020795969292521477f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.053783830255270004f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.13331924378871918f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.33333298563957214f));
  const __m512 near = _mm512_fmadd_ps(_mm512_mul_ps(x, t), p, x);
  const __m512 e = exp2_lanes(_mm512_mul_ps(magnitude, _mm512_set1_ps(-2.885390081777926814f)));
  const __m512 far = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  const __m512 far_signed = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      sign, _mm512_castps_si512(x), _mm512_castps_si512(far), 0xca));  // sign of x, rest of far
  const __mmask16 is_far = _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(0.6f), _CMP_NLT_UQ);
  return _mm512_mask_mov_ps(near, is_far, far_signed);
}

inline const float* score_row(const char* scores, int key) {
  return reinterpret_cast<const float*>(scores + key * 64);
}

// Highest of `top` and 32 keys' scores.
inline __m512 highest_score(const char* scores, __m512 top) {
  __m512 tops[4] = {top, top, top, top};
  for (int key = 0; key < kBlockKeys; key += 4) {
    for (int i = 0; i < 4; ++i) {
      tops[i] = _mm512_max_ps(_mm512_load_ps(score_row(scores, key + i)), tops[i]);
    }
  }
  return _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]), _mm512_max_ps(tops[2], tops[3]));
}

// 16 rows' state in registers while a step passes.
struct StepState {
  __m512 reference;  // what scores are taken relative to: the maximum, 0 while there is none
  __m512 alpha;      // factor for what was accumulated before this step
  __m512 sums[4];    // of keys 4n + i
};

// Takes the step's highest scores into `maximum`. Returns whether earlier output must be rescaled.
inline bool enter_step(__m512 top, float factor, float* maximum, StepState* state) {
  const __m512 none = _mm512_set1_ps(-kInfinity);
  const __m512 before = _mm512_load_ps(maximum);
  const __m512 now = _mm512_max_ps(top, before);
  _mm512_store_ps(maximum, now);
  state->reference = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(now, none, _CMP_NEQ_UQ), now);
  const __mmask16 moved = _mm512_cmp_ps_mask(now, before, _CMP_NEQ_UQ);
  const __m512 drop =
      _mm512_mul_ps(_mm512_sub_ps(before, state->reference), _mm512_set1_ps(factor));
  state->alpha = _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), moved, exp2_lanes(drop));
  for (auto& sum : state->sums) sum = _mm512_setzero_ps();
  return (moved & _mm512_cmp_ps_mask(before, none, _CMP_NEQ_UQ)) != 0;
}

// Probabilities of four keys: float32 into the sums, bf16 into two rows of a B tile (pairs of keys
// interleaved).
inline void take_keys(const char* scores, __m512 factor, StepState* state, char* tile_rows) {
  const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512 p[4];
  for (int i = 0; i < 4; ++i) {
    const __m512 s = _mm512_load_ps(score_row(scores, i));
    p[i] = exp2_lanes(_mm512_mul_ps(_mm512_sub_ps(s, state->reference), factor));
    state->sums[i] = _mm512_add_ps(state->sums[i], p[i]);
  }
  for (int i = 0; i < 4; i += 2) {
    const __m512i packed = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p[i + 1], p[i]));
    _mm512_store_si512(tile_rows + i * 32, _mm512_permutexvar_epi16(pairs, packed));
  }
}

inline void leave_step(const StepState& state, float* sum) {
  const __m512 added = _mm512_add_ps(_mm512_add_ps(state.sums[0], state.sums[1]),
                                     _mm512_add_ps(state.sums[2], state.sums[3]));
  _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_load_ps(sum), state.alpha, added));
}

// Scores of 32 keys become logits in log2 units: cap, then ALiBi.
struct Logits {
  float scale_log2, cap_inner, cap_outer;
  const float* slopes;
  const std::int64_t* positions;
};

inline __m512 distance(const std::int64_t* positions, std::int64_t key) {
  const __m512i at = _mm512_set1_epi64(key);
  const __m256 low =
      _mm512_cvtepi64_ps(_mm512_abs_epi64(_mm512_sub_epi64(_mm512_load_si512(positions), at)));
  const __m256 high =
      _mm512_cvtepi64_ps(_mm512_abs_epi64(_mm512_sub_epi64(_mm512_load_si512(positions + 8), at)));
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

inline void shape_scores(const Logits& logits, std::int64_t first_key, char* scores) {
  const __m512 slopes = _mm512_load_ps(logits.slopes);
  const bool slanted =
      _mm512_test_epi32_mask(_mm512_castps_si512(slopes), _mm512_castps_si512(slopes)) != 0;
  for (int key = 0; key < kBlockKeys; ++key) {
    float* at = reinterpret_cast<float*>(scores + key * 64);
    __m512 x = _mm512_load_ps(at);
    if (logits.cap_outer != 0.0f) {
      x = tanh_lanes(_mm512_mul_ps(x, _mm512_set1_ps(logits.cap_inner)));
      x = _mm512_mul_ps(x, _mm512_set1_ps(logits.cap_outer));
    } else {
      x = _mm512_mul_ps(x, _mm512_set1_ps(logits.scale_log2));
    }
    if (slanted) x = _mm512_fnmadd_ps(slopes, distance(logits.positions, first_key + key), x);
    _mm512_store_ps(at, x);
  }
}

// Scores of 32 keys that rows do not see become -inf. Bit k of a lane: key k is seen.
inline void hide_scores(__m512i seen, char* scores) {
  if (_mm512_cmpneq_epi32_mask(seen, _mm512_set1_epi32(-1)) == 0) return;
  const __m512 none = _mm512_set1_ps(-kInfinity);
  __m512i bit = _mm512_set1_epi32(1);
  for (int key = 0; key < kBlockKeys; ++key, bit = _mm512_add_epi32(bit, bit)) {
    _mm512_mask_store_ps(scores + key * 64, _mm512_testn_epi32_mask(seen, bit), none);
  }
}

}  // namespace
}  // namespace tilewise::cpu::amx
