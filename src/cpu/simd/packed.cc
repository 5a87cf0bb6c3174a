// The body for many rows: each tile of keys is converted to float32, and K
// transposed, once for a block of rows; then two register-blocked products with
// the softmax between them. Sums run in ascending order of d and of keys for
// every element, so a row's bits do not depend on its place.
#include <cstdint>
#include <cstring>

#include "cpu/simd/kernels.h"
#include "cpu/simd/targets.h"
#include "plan/cpu_scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/packed.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which reads this file once for each target.
#include "cpu/simd/math_inl.h"
#include "cpu/simd/softmax_inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::cpu {
namespace HWY_NAMESPACE {
namespace {

using plan::kRowGroup;

// kRowGroup rows x kWide vectors of accumulators, the vectors of one operand,
// and a broadcast.
constexpr int kWide = kManyRegisters ? 4 : 2;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_keys(const float* const* rows, std::int64_t dims, float* k) {
  for (std::int64_t c = 0; c < dims; ++c) k[c * kTileKeys] = rows[0][c];
}
#else
// x[r] holds, in its 128-bit block b, four elements of row 4 b + r; y[c] then
// holds element c of all rows, ascending.
HWY_INLINE void transpose_blocks(const FloatVec* x, FloatVec* y) {
  const FloatTag d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<FloatTag> > d64;
  const auto even_low = hn::BitCast(d64, hn::InterleaveLower(d, x[0], x[1]));
  const auto odd_low = hn::BitCast(d64, hn::InterleaveLower(d, x[2], x[3]));
  const auto even_high = hn::BitCast(d64, hn::InterleaveUpper(d, x[0], x[1]));
  const auto odd_high = hn::BitCast(d64, hn::InterleaveUpper(d, x[2], x[3]));
  y[0] = hn::BitCast(d, hn::InterleaveLower(d64, even_low, odd_low));
  y[1] = hn::BitCast(d, hn::InterleaveUpper(d64, even_low, odd_low));
  y[2] = hn::BitCast(d, hn::InterleaveLower(d64, even_high, odd_high));
  y[3] = hn::BitCast(d, hn::InterleaveUpper(d64, even_high, odd_high));
}

// Four floats at column `c` of each of the rows 0, 4, 8, ... of `rows`, one
// 128-bit block a row.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* const* rows, std::int64_t c) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + c);
  } else {
    const hn::Half<D> half;
    constexpr std::int64_t kHalfRows = static_cast<std::int64_t>(hn::MaxLanes(D())) / 2;
    return hn::Combine(d, load_blocks(half, rows + kHalfRows, c), load_blocks(half, rows, c));
  }
}

// k[d][lane] of kLanes keys from their float32 rows.
HWY_INLINE void transpose_keys(const float* const* rows, std::int64_t dims, float* k) {
  const FloatTag d;
  for (std::int64_t c = 0; c < dims; c += 4) {
    FloatVec x[4];
    FloatVec y[4];
    for (std::int64_t r = 0; r < 4; ++r) x[r] = load_blocks(d, rows + r, c);
    transpose_blocks(x, y);
    for (std::int64_t i = 0; i < 4; ++i) hn::Store(y[i], d, k + (c + i) * kTileKeys);
  }
}
#endif  // HWY_TARGET == HWY_SCALAR

template <class T>
HWY_INLINE void pack_keys(const KeyTile& tile, std::int64_t dims, const BodyScratch& scratch) {
  for (std::int64_t lane = 0; lane < kTileKeys; lane += kLanes) {
    const float* rows[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) {
      if constexpr (sizeof(T) == sizeof(float)) {
        rows[i] = static_cast<const float*>(tile.k[lane + i]);
      } else {
        float* row = scratch.staging + i * scratch.dim_pad;
        convert_to_float(static_cast<const T*>(tile.k[lane + i]), dims, dims, row);
        rows[i] = row;
      }
    }
    transpose_keys(rows, dims, scratch.k + lane);
  }
}

template <class T>
HWY_INLINE void pack_values(const KeyTile& tile, std::int64_t dims, const BodyScratch& scratch) {
  for (std::int64_t lane = 0; lane < kTileKeys; ++lane) {
    const T* row = static_cast<const T*>(tile.v[lane]);
    convert_to_float(row, dims, scratch.v_pad, scratch.v + lane * scratch.v_pad);
  }
}

HWY_INLINE bool all_finite(const float* x, std::int64_t count) {
  const FloatTag d;
  FloatVec zero = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const FloatVec value = hn::Load(d, x + i);
    zero = hn::Add(zero, hn::Sub(value, value));
  }
  return hn::GetLane(hn::SumOfLanes(d, zero)) == 0.0f;
}

// out[r][0, kVectors * kLanes) = a[r][0, steps) b for the rows of a group; b
// has rows of b_stride. kDecay: onto what out holds, times decay[r].
template <int kVectors, bool kDecay>
HWY_INLINE void multiply(const float* a, std::int64_t a_stride, const float* b,
                         std::int64_t b_stride, std::int64_t steps, float* out,
                         std::int64_t out_stride, const float* decay) {
  const FloatTag d;
  VectorRows<kRowGroup, kVectors> sum;
  for (std::int64_t r = 0; r < kRowGroup; ++r) {
    for (std::int64_t i = 0; i < kVectors; ++i) {
      sum[r][i] =
          kDecay ? hn::Mul(hn::Load(d, out + r * out_stride + i * kLanes), hn::Set(d, decay[r]))
                 : hn::Zero(d);
    }
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    Vectors<kVectors> values;
    for (std::int64_t i = 0; i < kVectors; ++i) {
      values[i] = hn::Load(d, b + step * b_stride + i * kLanes);
    }
    for (std::int64_t r = 0; r < kRowGroup; ++r) {
      const FloatVec factor = hn::Set(d, a[r * a_stride + step]);
      for (std::int64_t i = 0; i < kVectors; ++i) {
        sum[r][i] = hn::MulAdd(factor, values[i], sum[r][i]);
      }
    }
  }
  for (std::int64_t r = 0; r < kRowGroup; ++r) {
    for (std::int64_t i = 0; i < kVectors; ++i) {
      hn::Store(sum[r][i], d, out + r * out_stride + i * kLanes);
    }
  }
}

// `vectors` columns of a product, as many at a time as registers hold.
template <bool kDecay>
HWY_NOINLINE void multiply_columns(const float* a, std::int64_t a_stride, const float* b,
                                   std::int64_t b_stride, std::int64_t steps, std::int64_t vectors,
                                   float* out, std::int64_t out_stride, const float* decay) {
  for (; vectors >= kWide; vectors -= kWide) {
    multiply<kWide, kDecay>(a, a_stride, b, b_stride, steps, out, out_stride, decay);
    b += kWide * kLanes;
    out += kWide * kLanes;
  }
  switch (vectors) {
    case 3:
      return multiply<kWide - 1, kDecay>(a, a_stride, b, b_stride, steps, out, out_stride, decay);
    case 2:
      return multiply<kWide / 2, kDecay>(a, a_stride, b, b_stride, steps, out, out_stride, decay);
    case 1:
      return multiply<1, kDecay>(a, a_stride, b, b_stride, steps, out, out_stride, decay);
    default:
      return;
  }
}

struct PackedBlock {
  const Block& block;
  const BlockRows& rows;
  const BodyScratch& scratch;
  Logits logits;
};

// Lanes that some row of the group sees.
HWY_INLINE std::uint64_t group_lanes(const Block& block, const KeyTile& tile, std::int64_t first) {
  std::uint64_t lanes = 0;
  for (std::int64_t r = first; r < first + kRowGroup && r < block.count; ++r) lanes |= tile.seen[r];
  return lanes;
}

// Scores and weights of a group; `lanes` bounds the keys that are multiplied.
HWY_INLINE void weigh_group(const PackedBlock& p, const KeyTile& tile, std::int64_t first,
                            std::uint64_t lanes) {
  const BodyScratch& scratch = p.scratch;
  const std::int64_t begin = __builtin_ctzll(lanes) / kLanes;
  const std::int64_t end = (63 - __builtin_clzll(lanes)) / kLanes + 1;
  float* scores = scratch.scores + first * kTileKeys;
  multiply_columns<false>(scratch.q + first * scratch.dim_pad, scratch.dim_pad,
                          scratch.k + begin * kLanes, kTileKeys, p.block.call().head_dim,
                          end - begin, scores + begin * kLanes, kTileKeys, nullptr);
  const std::int64_t last = first + kRowGroup;
  for (std::int64_t r = first; r < last && r < p.block.count; ++r) {
    softmax_row(p.logits, p.rows, tile, r, scratch);
  }
}

template <class T>
HWY_INLINE void accumulate_group(const PackedBlock& p, const KeyTile& tile, std::int64_t first,
                                 std::uint64_t lanes, bool finite) {
  const BodyScratch& scratch = p.scratch;
  const float* weights = scratch.scores + first * kTileKeys;
  float* output = scratch.output + first * scratch.v_pad;
  if (finite) {
    const std::int64_t begin = __builtin_ctzll(lanes);
    const std::int64_t end = 64 - __builtin_clzll(lanes);
    multiply_columns<true>(weights + begin, kTileKeys, scratch.v + begin * scratch.v_pad,
                           scratch.v_pad, end - begin, scratch.v_pad / kLanes, output,
                           scratch.v_pad, scratch.decay + first);
    return;
  }
  for (std::int64_t r = 0; r < kRowGroup && first + r < p.block.count; ++r) {
    add_values<1, T>({weights + r * kTileKeys, tile.seen[first + r], tile.v,
                      p.block.call().v_head_dim, scratch.decay + first + r,
                      output + r * scratch.v_pad, scratch.v_pad, tile.v});
  }
}

template <class T>
struct AttendPacked {
  static void run(const OpenBlock& open, core::KeyRange keys) {
    const Block& block = open.block;
    const BodyScratch& scratch = open.scratch;
    const core::Attention& a = block.call();
    const PackedBlock p{block, open.rows, scratch, logits_of(a)};
    KeyTile tile;
    for (std::int64_t first = keys.begin; first < keys.end; first += kTileKeys) {
      if (!open_tile(block, open.rows, first, keys.end, &tile)) continue;
      pack_keys<T>(tile, a.head_dim, scratch);
      for (std::int64_t r = 0; r < block.count; r += kRowGroup) {
        const std::uint64_t lanes = group_lanes(block, tile, r);
        if (lanes != 0) weigh_group(p, tile, r, lanes);
      }
      pack_values<T>(tile, a.v_head_dim, scratch);
      const bool finite = tile.uniform() || all_finite(scratch.v, kTileKeys * scratch.v_pad);
      for (std::int64_t r = 0; r < block.count; r += kRowGroup) {
        const std::uint64_t lanes = group_lanes(block, tile, r);
        if (lanes != 0) accumulate_group<T>(p, tile, r, lanes, finite);
      }
    }
  }
};

void attend_packed_target(const OpenBlock& open, core::KeyRange keys) {
  const BodyScratch& scratch = open.scratch;
  const std::int64_t count = open.block.count;
  const std::int64_t padded = core::round_up(count, kRowGroup);
  clear_state(padded, scratch);
  // Rows that only fill the last group: whatever comes of them is not read.
  for (std::int64_t r = count; r < padded; ++r) scratch.decay[r] = 1.0f;
  std::memset(scratch.q + count * scratch.dim_pad, 0,
              sizeof(float) * static_cast<std::size_t>((padded - count) * scratch.dim_pad));
  for_type<AttendPacked>(open.block.call().kv_dtype)(open, keys);
}

template <class T>
struct LoadQueries {
  static void run(const OpenBlock& open) {
    const BodyScratch& scratch = open.scratch;
    for (std::int64_t r = 0; r < open.block.count; ++r) {
      const T* row = static_cast<const T*>(q_row(open.block, r));
      convert_to_float(row, open.block.call().head_dim, scratch.dim_pad,
                       scratch.q + r * scratch.dim_pad);
    }
  }
};

void load_queries_target(const OpenBlock& open) {
  for_type<LoadQueries>(open.block.call().q_dtype)(open);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilewise::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::cpu {

HWY_EXPORT(load_queries_target);
HWY_EXPORT(attend_packed_target);

void load_queries(const OpenBlock& open) { HWY_DYNAMIC_DISPATCH(load_queries_target)(open); }

void attend_packed(const OpenBlock& open, core::KeyRange keys) {
  HWY_DYNAMIC_DISPATCH(attend_packed_target)(open, keys);
}

}  // namespace tilewise::cpu
#endif  // HWY_ONCE
