// Packing of rows into tiles: Q^T and K and V^T as the tile products want them, and O^T back to
// rows. Transposes happen inside 128-bit lanes on registers whose lanes were loaded from different
// rows, so no step crosses lanes. Rows are read in pieces of 8 elements: head dims are multiples
// of 8.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tilewise::cpu::amx {
namespace {

constexpr int kTileBytes = 1024;
constexpr int kTileRows = 16;   // also float32 columns
constexpr int kTileDepth = 32;  // bf16 columns
constexpr int kPieceBytes = 16;
constexpr int kPiece = 8;  // elements

// Four pieces, one a lane: lane l from rows[4 * l] if kEvery is 4, and so on.
template <int kEvery>
inline __m512i load_lanes(const void* const* rows, std::int64_t offset) {
  const auto piece = [&](int l) {
    const char* row = static_cast<const char*>(rows[kEvery * l]);
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + offset));
  };
  __m512i lanes = _mm512_castsi128_si512(piece(0));
  lanes = _mm512_inserti32x4(lanes, piece(1), 1);
  lanes = _mm512_inserti32x4(lanes, piece(2), 2);
  return _mm512_inserti32x4(lanes, piece(3), 3);
}

inline void transpose_lanes_32(const __m512i in[4], __m512i out[4]) {
  const __m512i a0 = _mm512_unpacklo_epi32(in[0], in[1]), a1 = _mm512_unpackhi_epi32(in[0], in[1]);
  const __m512i b0 = _mm512_unpacklo_epi32(in[2], in[3]), b1 = _mm512_unpackhi_epi32(in[2], in[3]);
  out[0] = _mm512_unpacklo_epi64(a0, b0);
  out[1] = _mm512_unpackhi_epi64(a0, b0);
  out[2] = _mm512_unpacklo_epi64(a1, b1);
  out[3] = _mm512_unpackhi_epi64(a1, b1);
}

inline void transpose_lanes_16(const __m512i in[8], __m512i out[8]) {
  __m512i pairs[8];  // [half of the piece][rows 2i and 2i + 1]
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm512_unpacklo_epi16(in[2 * i], in[2 * i + 1]);
    pairs[4 + i] = _mm512_unpackhi_epi16(in[2 * i], in[2 * i + 1]);
  }
  transpose_lanes_32(pairs, out);
  transpose_lanes_32(pairs + 4, out + 4);
}

// 16 query rows to B tiles of Q^T, one each 32 of the head dim: row j of a tile holds the elements
// 2j and 2j + 1 of every query row. `flip` is xored in (the sign bits, for a negative scale).
inline void pack_queries(const void* const* rows, int head_dim, std::uint16_t flip, char* tiles) {
  const __m512i sign = _mm512_set1_epi16(static_cast<short>(flip));
  int d = 0;
  for (; d < head_dim; d += kPiece) {
    __m512i in[4], out[4];
    for (int i = 0; i < 4; ++i) {
      in[i] = _mm512_xor_si512(load_lanes<4>(rows + i, d * 2), sign);
    }
    transpose_lanes_32(in, out);
    char* to = tiles + d / kTileDepth * kTileBytes + d % kTileDepth / 2 * 64;
    for (int i = 0; i < 4; ++i) _mm512_store_si512(to + i * 64, out[i]);
  }
  for (; d % kTileDepth != 0; d += 2) {
    char* to = tiles + d / kTileDepth * kTileBytes + d % kTileDepth / 2 * 64;
    _mm512_store_si512(to, _mm512_setzero_si512());
  }
}

// 16 key rows to A tiles of K, one each 32 of the head dim.
inline void pack_keys(const void* const* rows, int head_dim, char* tiles) {
  const int whole = head_dim / kTileDepth * kTileDepth;
  const int rest = head_dim - whole;
  const auto tail = static_cast<__mmask32>((std::uint64_t{1} << rest) - 1);
  for (int i = 0; i < kTileRows; ++i) {
    const char* row = static_cast<const char*>(rows[i]);
    char* to = tiles + i * 64;
    for (int d = 0; d < whole; d += kTileDepth, to += kTileBytes) {
      _mm512_store_si512(to, _mm512_loadu_si512(row + d * 2));
    }
    if (rest != 0) _mm512_store_si512(to, _mm512_maskz_loadu_epi16(tail, row + whole * 2));
  }
}

// 32 value rows to A tiles of V^T, one each 16 of the value head dim, `tile_stride` bytes apart.
inline void pack_values(const void* const* rows, int v_head_dim, std::int64_t tile_stride,
                        char* tiles) {
  for (int d = 0; d < v_head_dim; d += kPiece) {
    __m512i in[8], out[8];
    for (int i = 0; i < 8; ++i) in[i] = load_lanes<8>(rows + i, d * 2);
    transpose_lanes_16(in, out);
    char* to = tiles + d / kTileRows * tile_stride + d % kTileRows * 64;
    for (int i = 0; i < 8; ++i) _mm512_store_si512(to + i * 64, out[i]);
  }
  if (v_head_dim % kTileRows != 0) {
    char* to = tiles + v_head_dim / kTileRows * tile_stride + kPiece * 64;
    for (int i = 0; i < 8; ++i) _mm512_store_si512(to + i * 64, _mm512_setzero_si512());
  }
}

// A 16 x 16 block of float32, transposed: lane-wise first, then whole lanes.
inline void transpose_block(const __m512 in[16], __m512 out[16]) {
  __m512i lanes[16];
  for (int i = 0; i < 4; ++i) {
    __m512i rows[4], columns[4];
    for (int k = 0; k < 4; ++k) rows[k] = _mm512_castps_si512(in[4 * i + k]);
    transpose_lanes_32(rows, columns);
    for (int k = 0; k < 4; ++k) lanes[4 * k + i] = columns[k];
  }
  // lanes[4k + i], lane l: rows 4i .. 4i + 3 of column 4l + k.
  for (int k = 0; k < 4; ++k) {
    const __m512i* from = lanes + 4 * k;
    const __m512i a = _mm512_shuffle_i32x4(from[0], from[1], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(from[0], from[1], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(from[2], from[3], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(from[2], from[3], 0xdd);
    out[k] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, c, 0x88));
    out[8 + k] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(a, c, 0xdd));
    out[4 + k] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(b, d, 0x88));
    out[12 + k] = _mm512_castsi512_ps(_mm512_shuffle_i32x4(b, d, 0xdd));
  }
}

}  // namespace
}  // namespace tilewise::cpu::amx
