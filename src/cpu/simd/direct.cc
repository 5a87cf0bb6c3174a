// The body for few rows (decode): dot products and weighted sums straight from
// the cache's rows, converted in registers, so that memory sets the pace. A
// tile ahead is looked up and prefetched while one is computed: the rows of one
// head lie too far apart for hardware to foresee.
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
// Rows of one pass over a tile: rows x 4 accumulators beside the 4 vectors of
// keys.
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

// Elements of a cache line, and the steps that they take.
template <class T>
constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));

// scores[r][0, 4) = q[r] . keys; fetches the same columns of the rows `ahead`
// on the way.
template <int kRows, class T>
HWY_INLINE void score_keys(const float* q, std::int64_t q_stride, const T* const* keys,
                           const void* const* ahead, std::int64_t dims, float* scores) {
  const FloatTag d;
  VectorRows<kRows, kKeys> sum;
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < kKeys; ++i) sum[r][i] = hn::Zero(d);
  }
  std::int64_t at = 0;
  for (; at + kLine<T> <= dims; at += kLine<T>) {
    for (std::int64_t i = 0; i < kKeys; ++i) {
      prefetch_bytes<64>(reinterpret_cast<const char*>(static_cast<const T*>(ahead[i]) + at));
    }
    for (std::int64_t i = 0; i < kLine<T>; i += kLanes) {
      dot_step<kRows, false>(q, q_stride, keys, at + i, sum);
    }
  }
  for (; at + kLanes <= dims; at += kLanes) dot_step<kRows, false>(q, q_stride, keys, at, sum);
  if (kHasHalves && at < dims) dot_step<kRows, true>(q, q_stride, keys, at, sum);
  for (std::int64_t r = 0; r < kRows; ++r) store_sums(sum[r], scores + r * kTileKeys);
}

// Scores of kRows rows from `row` on against the tile's lanes. Each of the
// passes over a tile's K and V fetches the same part of the tile `ahead`, so
// that memory is never idle.
template <int kRows, class T>
HWY_NOINLINE void score_tile(const OpenBlock& open, const KeyTile& tile, const KeyTile& ahead,
                             std::int64_t row) {
  const BodyScratch& scratch = open.scratch;
  const std::int64_t begin = __builtin_ctzll(tile.any) / kKeys * kKeys;
  const std::int64_t end = 64 - __builtin_clzll(tile.any);
  for (std::int64_t lane = begin; lane < end; lane += kKeys) {
    const T* keys[kKeys];
    for (std::int64_t i = 0; i < kKeys; ++i) keys[i] = static_cast<const T*>(tile.k[lane + i]);
    score_keys<kRows>(scratch.q + row * scratch.dim_pad, scratch.dim_pad, keys, ahead.k + lane,
                      open.block.call().head_dim, scratch.scores + row * kTileKeys + lane);
  }
}

template <int kRows, class T>
HWY_INLINE void accumulate_tile(const OpenBlock& open, const KeyTile& tile, const KeyTile& ahead,
                                std::int64_t row) {
  const BodyScratch& scratch = open.scratch;
  add_values<kRows, T>({scratch.scores + row * kTileKeys, kRows == 1 ? tile.seen[row] : tile.any,
                        tile.v, open.block.call().v_head_dim, scratch.decay + row,
                        scratch.output + row * scratch.v_pad, scratch.v_pad, ahead.v});
}

// Calls f with the number of rows of each pass as a constant. A request's rows
// are cut the same way whatever stands beside it.
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
HWY_INLINE void attend_tile(const OpenBlock& open, const Logits& logits, const KeyTile& tile,
                            const KeyTile& ahead) {
  const std::int64_t count = open.block.count;
  for_passes(count, [&](auto rows, std::int64_t row)
                        HWY_ATTR { score_tile<decltype(rows)::value, T>(open, tile, ahead, row); });
  for (std::int64_t r = 0; r < count; ++r) softmax_row(logits, open.rows, tile, r, open.scratch);
  if (tile.uniform()) {
    for_passes(count, [&](auto rows, std::int64_t row) HWY_ATTR {
      accumulate_tile<decltype(rows)::value, T>(open, tile, ahead, row);
    });
  } else {
    for (std::int64_t r = 0; r < count; ++r) accumulate_tile<1, T>(open, tile, ahead, r);
  }
}

// The tiles of several heads in the order in which they are attended: each tile
// by all heads.
struct TileWalk {
  const OpenBlock* open;
  std::int64_t heads;
  std::int64_t first, head;  // of the tile that comes next

  // Opens the next tile that some row sees, before key `end`; returns its
  // block, null at the end.
  HWY_INLINE const OpenBlock* next(std::int64_t end, KeyTile* tile) {
    while (first < end) {
      const OpenBlock& at = open[head];
      const bool seen = open_tile(at.block, at.rows, first, end, tile);
      if (++head == heads) {
        head = 0;
        first += kTileKeys;
      }
      if (seen) return &at;
    }
    return nullptr;
  }
};

template <class T>
struct AttendDirect {
  static void run(const OpenBlock* open, std::int64_t heads, core::KeyRange keys) {
    const Logits logits = logits_of(open->block.call());
    KeyTile tiles[2];
    TileWalk walk{open, heads, keys.begin, 0};
    const OpenBlock* at = walk.next(keys.end, &tiles[0]);
    for (int now = 0; at != nullptr; now = 1 - now) {
      KeyTile& ahead = tiles[1 - now];
      const OpenBlock* next = walk.next(keys.end, &ahead);
      // The next chunk's first tile, most likely of this worker too, is fetched
      // but not attended.
      const bool more = next != nullptr || walk.next(open->rows.all.end, &ahead) != nullptr;
      attend_tile<T>(*at, logits, tiles[now], more ? ahead : tiles[now]);
      at = next;
    }
  }
};

void attend_direct_target(const OpenBlock* open, std::int64_t heads, core::KeyRange keys) {
  for (std::int64_t i = 0; i < heads; ++i) clear_state(open[i].block.count, open[i].scratch);
  for_type<AttendDirect>(open->block.call().kv_dtype)(open, heads, keys);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tilewise::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::cpu {

HWY_EXPORT(attend_direct_target);

void attend_direct(const OpenBlock* open, std::int64_t heads, core::KeyRange keys) {
  HWY_DYNAMIC_DISPATCH(attend_direct_target)(open, heads, keys);
}

}  // namespace tilewise::cpu
#endif  // HWY_ONCE
