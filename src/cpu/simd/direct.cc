// The body for few rows (decode): dot products and weighted sums straight from the cache's rows,
// converted in registers, so that memory sets the pace. A tile ahead is looked up and prefetched
// while one is computed: the rows of one head lie too far apart for hardware to foresee.
#include <cstdint>
#include <type_traits>

#include "cpu/simd/kernels.h"
#include "cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/direct.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which reads this file once for each target.
#include "cpu/simd/math_inl.h"
#include "cpu/simd/softmax_inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::cpu {
namespace HWY_NAMESPACE {
namespace {

// Keys whose dot products are reduced together: four vectors become four lanes.
constexpr int kKeys = 4;
// Rows of one pass over a tile: rows x 4 accumulators beside the 4 vectors of keys.
constexpr int kPassRows = kManyRegisters ? 4 : 2;

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(const FloatVec* v, float* sums) {
  for (std::int64_t i = 0; i < kKeys; ++i) sums[i] = hn::GetLane(v[i]);
}
#else
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4> > add_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// sums[i] = the sum of v[i]'s lanes, pairwise.
HWY_INLINE void store_sums(const FloatVec* v, float* sums) {
  const FloatTag d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<FloatTag> > d64;
  const auto ab = hn::BitCast(
      d64, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto ce = hn::BitCast(
      d64, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  const auto four = add_blocks(d, hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)),
                                          hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce))));
  hn::Store(four, hn::CappedTag<float, 4>(), sums);
}
#endif  // HWY_TARGET == HWY_SCALAR

template <int kRows, bool kHalf, class T>
HWY_INLINE void dot_step(const float* q, std::int64_t q_stride, const T* const* keys,
                         std::int64_t at, Vectors<kKeys>* sum) {
  const FloatTag d;
  Vectors<kKeys> k;
  for (std::int64_t i = 0; i < kKeys; ++i) {
    k[i] = kHalf ? load_half(keys[i] + at) : load_float(d, keys[i] + at);
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    const FloatVec factor = hn::Load(d, q + r * q_stride + at);
    for (std::int64_t i = 0; i < kKeys; ++i) sum[r][i] = hn::MulAdd(factor, k[i], sum[r][i]);
  }
}

// scores[r][0, 4) = q[r] . keys
template <int kRows, class T>
HWY_INLINE void score_keys(const float* q, std::int64_t q_stride, const T* const* keys,
                           std::int64_t dims, float* scores) {
  const FloatTag d;
  VectorRows<kRows, kKeys> sum;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kKeys; ++i) sum[r][i] = hn::Zero(d);
  }
  std::int64_t at = 0;
  for (; at + kLanes <= dims; at += kLanes) dot_step<kRows, false>(q, q_stride, keys, at, sum);
  if (kHasHalves && at < dims) dot_step<kRows, true>(q, q_stride, keys, at, sum);
  for (std::int64_t r = 0; r < kRows; ++r) {
    store_sums(sum[r], scores + r * kTileKeys);
  }
}

struct DirectBlock {
  const Block& block;
  const BlockRows& rows;
  const BodyScratch& scratch;
  Logits logits;
};

// Scores of kRows rows from `row` on against the tile's lanes. Each of the passes over a tile's K
// and V fetches a part of the tile `ahead` (null: none), so that memory is never idle.
template <int kRows, class T>
HWY_NOINLINE void score_tile(const DirectBlock& p, const KeyTile& tile, const KeyTile* ahead,
                             std::int64_t row) {
  const BodyScratch& scratch = p.scratch;
  const std::int64_t dims = p.block.call().head_dim;
  const std::int64_t begin = __builtin_ctzll(tile.any) / kKeys * kKeys;
  const std::int64_t end = 64 - __builtin_clzll(tile.any);
  for (std::int64_t lane = begin; lane < end; lane += kKeys) {
    const T* keys[kKeys];
    for (std::int64_t i = 0; i < kKeys; ++i) keys[i] = static_cast<const T*>(tile.k[lane + i]);
    for (std::int64_t i = 0; i < kKeys && ahead != nullptr; ++i) {
      prefetch_row(ahead->k[lane + i], dims * static_cast<std::int64_t>(sizeof(T)));
    }
    score_keys<kRows>(scratch.q + row * scratch.dim_pad, scratch.dim_pad, keys, dims,
                      scratch.scores + row * kTileKeys + lane);
  }
}

template <int kRows, class T>
HWY_INLINE void accumulate_tile(const DirectBlock& p, const KeyTile& tile, const KeyTile* ahead,
                                std::int64_t row) {
  const BodyScratch& scratch = p.scratch;
  add_values<kRows, T>({scratch.scores + row * kTileKeys, kRows == 1 ? tile.seen[row] : tile.any,
                        tile.v, p.block.call().v_head_dim, scratch.decay + row,
                        scratch.output + row * scratch.v_pad, scratch.v_pad,
                        ahead != nullptr ? ahead->v : nullptr});
}

// Calls f with the number of rows of each pass as a constant. A request's rows are cut the same way
// whatever stands beside it.
template <class F>
HWY_INLINE void for_passes(std::int64_t rows, F&& f) {
  std::int64_t row = 0;
  if constexpr (kPassRows == 4) {
    for (; row + 4 <= rows; row += 4) f(std::integral_constant<int, 4>(), row);
  }
  for (; row + 2 <= rows; row += 2) f(std::integral_constant<int, 2>(), row);
  if (row < rows) f(std::integral_constant<int, 1>(), row);
}

template <class T>
HWY_INLINE void attend_tile(const DirectBlock& p, const KeyTile& tile, const KeyTile* ahead) {
  const std::int64_t count = p.block.count;
  for_passes(count, [&](auto rows, std::int64_t row) HWY_ATTR {
    score_tile<decltype(rows)::value, T>(p, tile, row == 0 ? ahead : nullptr, row);
  });
  for (std::int64_t r = 0; r < count; ++r) softmax_row(p.logits, p.rows, tile, r, p.scratch);
  if (tile.uniform()) {
    for_passes(count, [&](auto rows, std::int64_t row) HWY_ATTR {
      accumulate_tile<decltype(rows)::value, T>(p, tile, row == 0 ? ahead : nullptr, row);
    });
  } else {
    for (std::int64_t r = 0; r < count; ++r) accumulate_tile<1, T>(p, tile, nullptr, r);
  }
}

// Moves `first` to the next tile that some row sees and opens it; false at the end.
HWY_INLINE bool next_tile(const DirectBlock& p, std::int64_t end, std::int64_t* first,
                          KeyTile* tile) {
  for (; *first < end; *first += kTileKeys) {
    if (open_tile(p.block, p.rows, *first, end, tile)) {
      *first += kTileKeys;
      return true;
    }
  }
  return false;
}

template <class T>
struct AttendDirect {
  static void run(const Block& block, const BlockRows& rows, core::KeyRange keys,
                  const BodyScratch& scratch) {
    const core::Attention& a = block.call();
    const DirectBlock p{block, rows, scratch, logits_of(a)};
    KeyTile tiles[2];
    std::int64_t first = keys.begin;
    int now = 0;
    bool more = next_tile(p, keys.end, &first, &tiles[0]);
    while (more) {
      KeyTile& next = tiles[1 - now];
      more = next_tile(p, keys.end, &first, &next);
      // The next chunk's first tile, most likely of this worker too, is fetched but not attended.
      const bool ahead = more || next_tile(p, rows.all.end, &first, &next);
      attend_tile<T>(p, tiles[now], ahead ? &next : nullptr);
      now = 1 - now;
    }
  }
};

void attend_direct_target(const Block& block, const BlockRows& rows, core::KeyRange keys,
                          const BodyScratch& scratch) {
  clear_state(block.count, scratch);
  for_type<AttendDirect>(block.call().kv_dtype)(block, rows, keys, scratch);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilewise::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::cpu {

HWY_EXPORT(attend_direct_target);

void attend_direct(const Block& block, const BlockRows& rows, core::KeyRange keys,
                   const BodyScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(attend_direct_target)(block, rows, keys, scratch);
}

}  // namespace tilewise::cpu
#endif  // HWY_ONCE
