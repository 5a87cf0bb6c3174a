// A block's way in and out of the panels: queries, keys and values in, output out.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "cpu/amx/kernel.h"
#include "cpu/amx/odd_values.h"
#include "cpu/amx/products.h"

namespace tilewise::cpu::amx {
namespace {

inline void begin_panels(const Panels& p, const void* const* q_rows, bool negative_scale) {
  const Geometry g(p);
  const std::uint16_t flip = negative_scale ? 0x8000 : 0;
  for (int group = 0; group < p.rows / kTileRows; ++group) {
    pack_queries(q_rows + group * kTileRows, p.head_dim, flip, g.q(group));
    _mm512_store_ps(p.maximum + group * kTileRows, _mm512_set1_ps(-kInfinity));
    _mm512_store_ps(p.sum + group * kTileRows, _mm512_setzero_ps());
    char* output = g.output(group);
    for (int i = 0; i < g.v_tiles * kTileRows; ++i) {
      _mm512_store_ps(output + i * 64, _mm512_setzero_ps());
    }
  }
}

// As core::float_to_bf16: to nearest even, subnormals kept, NaN stays NaN. (The instruction
// flushes.)
inline __m256i round_to_bf16(__m512 x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
  const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet));
}

// Both kinds of rows come from further away than the first-level cache: V is fetched while K is
// packed.
inline void fetch_row(const void* row, int bytes) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(static_cast<const char*>(row) + i, _MM_HINT_T0);
}

inline std::uint64_t keep_odd(const Geometry& g, int tile, const void* const* v_rows,
                              std::uint64_t suspects) {
  std::uint64_t odd = 0;
  for (std::uint64_t left = suspects; left != 0; left &= left - 1) {
    const int key = __builtin_ctzll(left);
    const auto* row = static_cast<const std::uint16_t*>(v_rows[key]);
    if (!has_odd(row, g.p.v_head_dim)) continue;
    odd |= left & -left;
    const std::int64_t kept = (std::int64_t{tile} * kTileKeys + key) * g.p.v_head_dim;
    std::memcpy(g.p.odd + kept, row, static_cast<std::size_t>(g.p.v_head_dim) * sizeof *row);
    const int block = tile * 2 + key / kBlockKeys;
    zero_odd(row, g.p.v_head_dim, std::int64_t{kTileBytes} * g.step_blocks, key % kBlockKeys,
             g.v(0) + block * kTileBytes);
  }
  return odd;
}

inline std::uint64_t load_panels(const Panels& p, int tile, const void* const* k_rows,
                                 const void* const* v_rows, std::uint64_t suspects) {
  const Geometry g(p);
  for (int i = 0; i < kTileKeys; i += kTileRows) {
    for (int row = i; row < i + kTileRows; ++row) fetch_row(v_rows[row], p.v_head_dim * 2);
    pack_keys(k_rows + i, p.head_dim, g.k((tile * kTileKeys + i) / kTileRows));
  }
  for (int i = 0; i < kTileKeys; i += kBlockKeys) {
    const int block = (tile * kTileKeys + i) / kBlockKeys;
    pack_values(v_rows + i, p.v_head_dim, std::int64_t{kTileBytes} * g.step_blocks,
                g.v(0) + block * kTileBytes);
  }
  return keep_odd(g, tile, v_rows, suspects);
}

inline void clear_panels(const Panels& p, int tile) {
  const Geometry g(p);
  constexpr int kBlocks = kTileKeys / kBlockKeys;
  std::memset(g.k(tile * kTileKeys / kTileRows), 0,
              static_cast<std::size_t>(kTileKeys / kTileRows * g.q_tiles * kTileBytes));
  for (int column = 0; column < g.v_tiles; ++column) {
    std::memset(g.v(column) + tile * kBlocks * kTileBytes, 0, kBlocks * kTileBytes);
  }
}

inline void store_panels(const Panels& p, int group, const OutputRows& out) {
  const Geometry g(p);
  const __m512 factor = _mm512_loadu_ps(out.factor);
  for (int column = 0; column < g.v_tiles; ++column) {
    const char* from = g.output(group) + column * kTileBytes;
    __m512 in[16], rows[16];
    // + 0: a zero has one sign, whichever keys that a row does not see were added to it as zeros.
    for (int i = 0; i < 16; ++i) {
      const float* at = reinterpret_cast<const float*>(from + i * 64);
      in[i] = _mm512_add_ps(_mm512_mul_ps(_mm512_load_ps(at), factor), _mm512_setzero_ps());
    }
    transpose_block(in, rows);
    const bool whole = p.v_head_dim - column * kTileRows >= kTileRows;
    const auto lanes = static_cast<__mmask16>(whole ? 0xFFFF : 0xFF);
    for (int i = 0; i < out.count; ++i) {
      if (out.fp32) {
        float* to = static_cast<float*>(out.row[i]) + column * kTileRows;
        _mm512_mask_storeu_ps(to, lanes, rows[i]);
      } else {
        std::uint16_t* to = static_cast<std::uint16_t*>(out.row[i]) + column * kTileRows;
        _mm256_mask_storeu_epi16(to, lanes, round_to_bf16(rows[i]));
      }
    }
  }
}

}  // namespace
}  // namespace tilewise::cpu::amx
