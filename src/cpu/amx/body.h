// Class P on bf16 tiles: a block of packed query rows against the keys, a step of keys at a time.
//   S^T = K Q^T per band of 32 rows, P^T from it down registers, O^T += V^T P^T.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/amx/pack.h"
#include "cpu/amx/softmax.h"

#ifndef STEP
#define STEP 128
#endif
#ifndef OVERLAP
#define OVERLAP 1
#endif

namespace tilewise::cpu::amx {
namespace {

constexpr int kBandRows = 32;
constexpr int kStepKeys = STEP;
constexpr int kStepBlocks = kStepKeys / kBlockKeys;

struct Step {
  const void* k_rows[kStepKeys];
  const void* v_rows[kStepKeys];
  int keys;                       // multiple of 64
  const std::uint64_t* visible;   // [key tile][row], bit = key; null: all
};

template <class Tiles>
struct Body {
  int head_dim, v_head_dim, rows;
  float scale;
  char *q, *k, *v, *o, *s, *p;
  float *max, *sum;

  int q_tiles() const { return (head_dim + 31) / 32; }
  int v_tiles() const { return (v_head_dim + 15) / 16; }
  int bands() const { return (rows + 31) / 32; }

  static std::int64_t bytes(int hd, int vd, int rows) {
    const int qt = (hd + 31) / 32, vt = (vd + 15) / 16, groups = (rows + 31) / 32 * 2;
    return 1024ll * (groups * qt + kStepKeys / 16 * qt + vt * kStepBlocks + groups * vt + 2 * 2 * kStepKeys / 16 + 2 * kStepBlocks) + groups * 16 * 8;
  }
  void bind(char* scratch) {
    auto take = [&](std::int64_t n) { char* at = scratch; scratch += n; return at; };
    const int groups = bands() * 2;
    q = take(1024ll * groups * q_tiles());
    k = take(1024ll * kStepKeys / 16 * q_tiles());
    v = take(1024ll * v_tiles() * kStepBlocks);
    o = take(1024ll * groups * v_tiles());
    s = take(1024ll * 4 * kStepKeys / 16);
    p = take(1024ll * 2 * kStepBlocks);
    max = reinterpret_cast<float*>(take(groups * 64));
    sum = reinterpret_cast<float*>(take(groups * 64));
  }

  void begin(const void* const* q_rows, bool negative) {
    for (int g = 0; g < bands() * 2; ++g) {
      pack_queries(q_rows + g * 16, head_dim, negative ? 0x8000 : 0, q + 1024ll * g * q_tiles());
      _mm512_store_ps(max + g * 16, _mm512_set1_ps(-__builtin_inff()));
      _mm512_store_ps(sum + g * 16, _mm512_setzero_ps());
      for (int i = 0; i < v_tiles() * 16; ++i) _mm512_store_ps(o + 1024ll * g * v_tiles() + i * 64, _mm512_setzero_ps());
    }
  }

  struct Range { int begin, end; };  // blocks of 32 keys

  static std::uint32_t half(const std::uint64_t* words, int block) { return static_cast<std::uint32_t>(words[0] >> (block % 2 * 32)); }

  __m512i block_bits(const Step& step, int row, int block) const {
    const std::uint64_t* w = step.visible + block / 2 * (bands() * 32) + row;
    const __m512i sh = _mm512_set1_epi64(block % 2 * 32);
    const __m256i a = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(_mm512_loadu_si512(w), sh));
    const __m256i b = _mm512_cvtepi64_epi32(_mm512_srlv_epi64(_mm512_loadu_si512(w + 8), sh));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  }

  Range seen(const Step& step, int band) const {
    const int blocks = step.keys / kBlockKeys;
    if (step.visible == nullptr) return {0, blocks};
    Range r{blocks, 0};
    for (int b = 0; b < blocks; ++b) {
      const __m512i bits = _mm512_or_si512(block_bits(step, band * 32, b), block_bits(step, band * 32 + 16, b));
      if (_mm512_test_epi32_mask(bits, bits) == 0) continue;
      if (b < r.begin) r.begin = b;
      r.end = b + 1;
    }
    return r;
  }

  void scores_block(int band, int block, char* out) {
    const int qt = q_tiles();
    const char* k0 = k + 2048ll * block * qt;
    const char* q0 = q + 2048ll * band * qt;
    Tiles::template zero<0>(); Tiles::template zero<1>(); Tiles::template zero<2>(); Tiles::template zero<3>();
    for (int c = 0; c < qt; ++c) {
      Tiles::template load<4>(k0 + c * 1024);
      Tiles::template load<6>(q0 + c * 1024);
      Tiles::template load<5>(k0 + (qt + c) * 1024);
      Tiles::template load<7>(q0 + (qt + c) * 1024);
      Tiles::template multiply<0, 4, 6>();
      Tiles::template multiply<1, 5, 6>();
      Tiles::template multiply<2, 4, 7>();
      Tiles::template multiply<3, 5, 7>();
    }
    Tiles::template store<0>(out + block * 2048);
    Tiles::template store<1>(out + block * 2048 + 1024);
    Tiles::template store<2>(out + kStepKeys * 64 + block * 2048);
    Tiles::template store<3>(out + kStepKeys * 64 + block * 2048 + 1024);
  }

  void hide(const Step& step, int band, Range r, char* scores) {
    for (int g = 0; g < 2; ++g) {
      for (int b = r.begin; b < r.end; ++b) {
        const __m512i bits = block_bits(step, band * 32 + g * 16, b);
        if (_mm512_cmpneq_epi32_mask(bits, _mm512_set1_epi32(-1)) == 0) continue;
        float* at = reinterpret_cast<float*>(scores + g * kStepKeys * 64 + b * 2048);
        __m512i bit = _mm512_set1_epi32(1);
        for (int j = 0; j < 32; ++j, bit = _mm512_add_epi32(bit, bit)) {
          const __mmask16 hidden = _mm512_testn_epi32_mask(bits, bit);
          _mm512_mask_store_ps(at + j * 16, hidden, _mm512_set1_ps(-__builtin_inff()));
        }
      }
    }
  }

  void rescale(int group, __m512 alpha) {
    float* at = reinterpret_cast<float*>(o + 1024ll * group * v_tiles());
    for (int i = 0; i < v_tiles() * 16; ++i) _mm512_store_ps(at + i * 16, _mm512_mul_ps(_mm512_load_ps(at + i * 16), alpha));
  }

  void accumulate(int band, Range r) {
    const int vt = v_tiles();
    char* o0 = o + 2048ll * band * vt;
    char* o1 = o0 + 1024ll * vt;
    const char* p0 = p;
    const char* p1 = p + kStepBlocks * 1024;
    int d = 0;
    for (; d + 2 <= vt; d += 2) {
      Tiles::template load<0>(o0 + d * 1024); Tiles::template load<1>(o0 + d * 1024 + 1024);
      Tiles::template load<2>(o1 + d * 1024); Tiles::template load<3>(o1 + d * 1024 + 1024);
      const char* v0 = v + 1024ll * d * kStepBlocks;
      for (int b = r.begin; b < r.end; ++b) {
        Tiles::template load<4>(v0 + b * 1024);
        Tiles::template load<6>(p0 + b * 1024);
        Tiles::template load<5>(v0 + (kStepBlocks + b) * 1024);
        Tiles::template load<7>(p1 + b * 1024);
        Tiles::template multiply<0, 4, 6>();
        Tiles::template multiply<1, 5, 6>();
        Tiles::template multiply<2, 4, 7>();
        Tiles::template multiply<3, 5, 7>();
      }
      Tiles::template store<0>(o0 + d * 1024); Tiles::template store<1>(o0 + d * 1024 + 1024);
      Tiles::template store<2>(o1 + d * 1024); Tiles::template store<3>(o1 + d * 1024 + 1024);
    }
    if (d < vt) {
      Tiles::template load<0>(o0 + d * 1024);
      Tiles::template load<2>(o1 + d * 1024);
      const char* v0 = v + 1024ll * d * kStepBlocks;
      for (int b = r.begin; b < r.end; ++b) {
        Tiles::template load<4>(v0 + b * 1024);
        Tiles::template load<6>(p0 + b * 1024);
        Tiles::template load<7>(p1 + b * 1024);
        Tiles::template multiply<0, 4, 6>();
        Tiles::template multiply<2, 4, 7>();
      }
      Tiles::template store<0>(o0 + d * 1024);
      Tiles::template store<2>(o1 + d * 1024);
    }
  }

  void step(const Step& step) {
    for (int g = 0; g < step.keys / 16; ++g) pack_keys(step.k_rows + g * 16, head_dim, k + 1024ll * g * q_tiles());
    for (int b = 0; b < step.keys / 32; ++b) pack_values(step.v_rows + b * 32, v_head_dim, 1024ll * kStepBlocks, v + b * 1024);
    const int n = bands();
    int side = 0;
    Range now = seen(step, 0);
    const std::int64_t s_bytes = kStepKeys * 128;
    for (int b = now.begin; b < now.end; ++b) scores_block(0, b, s);
    for (int band = 0; band < n; ++band, side ^= 1) {
      char* here = s + side * s_bytes;
      char* there = s + (side ^ 1) * s_bytes;
      const Range next = band + 1 < n ? seen(step, band + 1) : Range{0, 0};
      int nb = next.begin;
      if (now.begin < now.end) {
        if (step.visible != nullptr) hide(step, band, now, here);
        RowState st[2];
        for (int g = 0; g < 2; ++g) {
          const int group = band * 2 + g;
          float* m = max + group * 16;
          const __m512 before = _mm512_load_ps(m);
          st[g] = enter_step(highest_score(here + g * kStepKeys * 64, now.begin * 32, now.end * 32), scale, m);
          const __mmask16 some = _mm512_cmp_ps_mask(before, _mm512_set1_ps(-__builtin_inff()), _CMP_NEQ_UQ);
          if (_mm512_mask_cmp_ps_mask(some, st[g].alpha, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) != 0) rescale(group, st[g].alpha);
        }
        for (int b = now.begin; b < now.end; ++b) {
#if OVERLAP
          if (nb < next.end) scores_block(band + 1, nb++, there);
#endif
          for (int g = 0; g < 2; ++g) take_block(here + g * kStepKeys * 64 + b * 2048, scale, st[g], p + g * kStepBlocks * 1024 + b * 1024);
        }
        for (int g = 0; g < 2; ++g) leave_step(st[g], sum + (band * 2 + g) * 16);
        accumulate(band, now);
      }
      while (nb < next.end) scores_block(band + 1, nb++, there);
      now = next;
    }
  }

  // inv[row]; out float rows
  void finish(const float* inv, float* const* out) {
    for (int g = 0; g < bands() * 2; ++g) {
      const __m512 f = _mm512_loadu_ps(inv + g * 16);
      for (int d = 0; d < v_tiles(); ++d) {
        __m512 in[16], t[16];
        for (int i = 0; i < 16; ++i) in[i] = _mm512_add_ps(_mm512_mul_ps(_mm512_load_ps(o + 1024ll * (g * v_tiles() + d) + i * 64), f), _mm512_setzero_ps());
        transpose_block(in, t);
        for (int i = 0; i < 16 && g * 16 + i < rows; ++i) _mm512_mask_storeu_ps(out[g * 16 + i] + d * 16, static_cast<__mmask16>(v_head_dim - d * 16 >= 16 ? 0xffff : 0xff), t[i]);
      }
    }
  }
};

}  // namespace
}  // namespace tilewise::cpu::amx
