// Infinities and NaN in rows of V that some rows of a block see and others do not. In a tile
// product 0 times infinity would reach a row that does not see the key, so such elements are left
// out of the tiles and added, by the same rules, to the rows that see them.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "cpu/amx/pack.h"

namespace tilewise::cpu::amx {
namespace {

inline bool is_odd(std::uint16_t bf16) { return (bf16 & 0x7F80u) == 0x7F80u; }

inline bool has_odd(const std::uint16_t* row, int v_head_dim) {
  const __m512i exponent = _mm512_set1_epi16(0x7F80);
  for (int d = 0; d < v_head_dim; d += kTileDepth) {
    const int left = v_head_dim - d;
    const auto lanes =
        left < kTileDepth ? static_cast<__mmask32>((1u << left) - 1u) : static_cast<__mmask32>(-1);
    const __m512i x = _mm512_and_si512(_mm512_maskz_loadu_epi16(lanes, row + d), exponent);
    if (_mm512_cmpeq_epi16_mask(x, exponent) != 0) return true;
  }
  return false;
}

// Zeroes what is not finite in key `key` of V^T tiles, 16 columns each, `tile_stride` bytes apart.
inline void zero_odd(const std::uint16_t* row, int v_head_dim, std::int64_t tile_stride, int key,
                     char* tiles) {
  for (int d = 0; d < v_head_dim; ++d) {
    if (!is_odd(row[d])) continue;
    char* at = tiles + d / kTileRows * tile_stride + d % kTileRows * 64;
    reinterpret_cast<std::uint16_t*>(at)[key] = 0;
  }
}

// Probabilities of key `key` from a B tile of them, a lane a row.
inline __m512 tile_weights(const char* tile, int key) {
  const __m512i pairs = _mm512_load_si512(tile + key / 2 * 64);
  const __m512i high = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u)));
  return _mm512_castsi512_ps(key % 2 == 0 ? _mm512_slli_epi32(pairs, 16) : high);
}

inline void add_odd_row(const std::uint16_t* row, int v_head_dim, __m512 weights, __mmask16 seen,
                        char* output) {
  for (int d = 0; d < v_head_dim; ++d) {
    if (!is_odd(row[d])) continue;
    float* at = reinterpret_cast<float*>(output + d * 64);
    const __m512 value = _mm512_castsi512_ps(_mm512_set1_epi32(row[d] << 16));
    const __m512 sum = _mm512_load_ps(at);
    _mm512_store_ps(at, _mm512_mask_add_ps(sum, seen, sum, _mm512_mul_ps(weights, value)));
  }
}

}  // namespace
}  // namespace tilewise::cpu::amx
