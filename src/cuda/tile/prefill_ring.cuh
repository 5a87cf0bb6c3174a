// The K and V tiles of a prefill block on their way to shared memory: every warp copies its share
// of the keys of a tile, all warps read all of it. With one stage K of the next tile comes while
// weights are made and multiplied with V, and V while Q and K are; with two, whole tiles come
// ahead. Little of it lives in registers, which the products need.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/tile/kv_rows.cuh"
#include "cuda/tile/prefill_block.cuh"

namespace tilewise::cuda::tile {

// Copies 16-byte pieces of rows that follow each other: a lane's pieces of a row are kLanes apart,
// its rows kRowsApart.
template <std::int32_t kDim>
struct StraightCopy {
  static constexpr std::int32_t kPieces = kDim / 8;
  static constexpr std::int32_t kLanes = kPieces % 32 == 0   ? 32
                                         : kPieces % 16 == 0 ? 16
                                         : kPieces % 8 == 0  ? 8
                                                             : 4;
  static constexpr std::int32_t kRowsApart = 32 / kLanes;

  __device__ static std::int32_t row() {
    return static_cast<std::int32_t>(threadIdx.x % 32) / kLanes;
  }
  __device__ static std::int32_t piece() {
    return static_cast<std::int32_t>(threadIdx.x % 32) % kLanes;
  }

  // `from`: this lane's piece of the first row, `pieces`: of a row; the rest is written as zeros.
  template <std::int32_t kRows>
  __device__ static void run(std::uint32_t to, const char* from, std::int64_t row_bytes,
                             std::int32_t pieces) {
    const std::uint32_t first = to + piece_offset<kPieces>(row(), piece());
#pragma unroll
    for (std::int32_t r = 0; r < kRows; r += kRowsApart) {
#pragma unroll
      for (std::int32_t c = 0; c < kPieces; c += kLanes) {
        const bool there = piece() + c < pieces;
        ptx::copy_async_16(rows_on<kPieces>(first, r) + static_cast<std::uint32_t>(c * kPieceBytes),
                           there ? from + c * kPieceBytes : from - piece() * kPieceBytes,
                           there ? kPieceBytes : 0);
      }
      from += kRowsApart * row_bytes;
    }
  }
};

template <std::int32_t kDim, class Shape, bool kPaged>
class PrefillRing {
  static constexpr std::int32_t kKeys = Shape::kShape.keys;
  static constexpr std::int32_t kStages = Shape::kShape.stages;
  static_assert(kStages == 1 || kStages == 2);
  static constexpr std::int32_t kWarps = Shape::kShape.threads() / 32;
  static constexpr std::int32_t kShare = kKeys / kWarps;
  static constexpr std::int32_t kTileBytes = kKeys * kDim * 2;
  static constexpr std::uint32_t kAll = (1u << kShare) - 1;
  using Straight = StraightCopy<kDim>;

  // The share of a tile of this warp.
  struct Share {
    std::int32_t key;   // its first
    std::int32_t page;  // of key `lane` of the share, as the page table states it; -1: none
    bool straight;      // its rows follow each other in the cache
    std::int32_t row;   // if so: of its first key, in the page if paged
  };

 public:
  // `present` tells which keys of the tiles in flight are there: 64 bits a slot, in shared
  // memory.
  static constexpr std::int32_t kSlots = 2;
  static constexpr std::uint32_t kValuesOn = kTileBytes;  // V's tile lies behind K's

  // Starts with the tile from `key` on.
  __device__ PrefillRing(const AttentionParams& p, const PrefillBlock& block,
                         const PrefillMemory& memory, std::int32_t key, std::uint64_t* present)
      : p_(p), block_(block), ring_(memory.ring), present_(present) {
    if (kPaged) {
      const std::int32_t first = key & -batch_keys();
      next_ = ask(static_cast<std::uint32_t>(first));
      if (first != key) turn(first);
    }
    issue(key);
  }

  // K of the tile from `key` on is there for all warps, with two stages V too. To be asked for in
  // order.
  __device__ std::uint32_t wait_keys(std::int32_t key) {
    ptx::wait_async<0>();
    if (kPaged) {
      holes_ = __syncthreads_or(missing_) != 0;
    } else {
      __syncthreads();
    }
    if (kStages == 1) {
      issue_v(key, share_of(key));
      ptx::commit_async();
    } else {
      issue(key + kKeys);
    }
    return tile_of(key);
  }

  // V of the same tile is there.
  __device__ void wait_values(std::int32_t key) {
    if (kStages > 1) return;
    ptx::wait_async<0>();
    __syncthreads();
    issue(key + kKeys);
  }

  // Which keys of the tile that was waited for are in the cache.
  __device__ std::uint64_t present(std::int32_t key) const {
    return kPaged && holes_ ? present_[slot_of(key)] : ~std::uint64_t{0};
  }

 private:
  __device__ std::uint32_t tile_of(std::int32_t key) const {
    return ring_ + static_cast<std::uint32_t>(key / kKeys % kStages * 2 * kTileBytes);
  }
  __device__ static std::int32_t slot_of(std::int32_t key) { return key / kKeys % kSlots; }
  __device__ static std::int32_t share() {
    return static_cast<std::int32_t>(threadIdx.x / 32) * kShare;
  }
  // Where this warp's share of a tile's rows lies.
  __device__ static std::uint32_t share_offset() {
    return static_cast<std::uint32_t>(share() * kDim * 2);
  }
  __device__ static std::int32_t lane() { return static_cast<std::int32_t>(threadIdx.x % 32); }

  // Page ids are asked for in batches, one ahead: where a share lies in one page, a lane has that
  // of one tile, else that of one key.
  __device__ bool is_wide() const { return p_.page_size.divisor() % kShare == 0; }
  __device__ std::int32_t batch_keys() const { return (is_wide() ? 32 : 32 / kShare) * kKeys; }

  // This lane's id of the batch that begins at `first`.
  __device__ std::int32_t ask(std::uint32_t first) const {
    const std::int32_t tile = is_wide() ? lane() : lane() / kShare;
    const auto j = first + static_cast<std::uint32_t>(tile * kKeys + share() +
                                                      (is_wide() ? 0 : lane() % kShare));
    if (j >= static_cast<std::uint32_t>(block_.seen.end)) return -1;
    const core::RequestKv& cache = block_.request.cache;
    const std::int64_t slot = p_.page_size.quotient(j) - cache.first_page;
    return slot >= 0 && slot < cache.table_len ? cache.table[slot] : -1;
  }

  // Goes on to the batch that begins at `first`.
  __device__ void turn(std::int32_t first) {
    pages_ = next_;
    next_ = ask(static_cast<std::uint32_t>(first) + static_cast<std::uint32_t>(batch_keys()));
  }

  // Of the tile from `tile` on, one of the batch at hand.
  __device__ Share share_of(std::int32_t tile) const {
    Share s{tile + share(), 0, false, tile + share()};
    s.straight = s.key >= block_.straight.begin && s.key + kShare <= block_.straight.end;
    if (!kPaged) return s;
    const std::int32_t at = tile / kKeys;
    const std::int32_t narrow = at * kShare + lane() % kShare;
    s.page = __shfl_sync(~0u, pages_, is_wide() ? at : narrow);  // of the lane modulo 32
    s.straight = s.straight && is_page(s.page);
    const auto key = static_cast<std::uint32_t>(s.key);
    s.row = static_cast<std::int32_t>(p_.page_size.remainder(key, p_.page_size.quotient(key)));
    return s;
  }

  __device__ bool is_page(std::int32_t page) const { return page >= 0 && page < p_.a.kv.num_pages; }

  // Row `row` of the cache, paged of page `page`, by its side's first row and strides.
  __device__ static const char* cached_row(const char* first, const core::KvStrides& stride,
                                           std::int32_t page, std::int32_t row) {
    const std::int64_t elements = row * stride.token + (kPaged ? page * stride.batch : 0);
    return first + elements * 2;
  }

  // Copies K or V of a share; returns which of its keys are there.
  __device__ std::uint32_t copy(const PrefillSide& side, const core::KvStrides& stride,
                                const Share& s, std::uint32_t to) const {
    const std::int32_t pieces = side.pieces;
    if (s.straight) {
      const char* from = cached_row(side.first, stride, s.page, s.row + Straight::row()) +
                         Straight::piece() * kPieceBytes;
      Straight::template run<kShare>(to, from, stride.token * 2, pieces);
      return kAll;
    }
    const std::int32_t j = s.key + lane() % kShare;
    bool there = j >= block_.seen.begin && j < block_.seen.end;
    const char* row = side.first;
    if (j >= block_.request.first_new) {
      if (there) row = side.appended + j * side.appended_bytes;
    } else if (!kPaged) {
      if (there) row = cached_row(side.first, stride, 0, j);
    } else if (is_page(s.page)) {
      const auto key = static_cast<std::uint32_t>(j);
      const std::uint32_t in_page = p_.page_size.remainder(key, p_.page_size.quotient(key));
      if (there) row = cached_row(side.first, stride, s.page, static_cast<std::int32_t>(in_page));
    } else {
      if (there) report_page(p_.a.kv, block_.request.cache, j, Report{p_.faults});
      there = false;
    }
    const std::uint32_t present = __ballot_sync(~0u, there) & kAll;
    copy_found(row, present, pieces, to);
    return present;
  }

  // Copies rows that lie anywhere; `row`: of lane i's key, i < kShare. Rolled up, to spare
  // registers.
  __device__ static void copy_found(const char* row, std::uint32_t present, std::int32_t pieces,
                                    std::uint32_t to) {
    constexpr std::int32_t kPieces = kDim / 8;
#pragma unroll 1
    for (std::int32_t at = lane(); at < kShare * kPieces; at += 32) {
      const std::int32_t r = at / kPieces, c = at % kPieces;
      const auto address = __shfl_sync(~0u, reinterpret_cast<std::uint64_t>(row), r);
      const bool there = c < pieces && (present >> r & 1u) != 0;
      ptx::copy_async_16(to + piece_offset<kPieces>(r, c),
                         reinterpret_cast<const char*>(address) + (there ? c * kPieceBytes : 0),
                         there ? kPieceBytes : 0);
    }
  }

  // Starts the copies of a tile, with one stage of its K.
  __device__ void issue(std::int32_t key) {
    if (key < block_.seen.end) {
      if (kPaged && (key & (batch_keys() - 1)) == 0) turn(key);
      const Share share = share_of(key);
      const std::uint32_t present =
          copy(block_.k, p_.a.kv.k_stride, share, tile_of(key) + share_offset());
      if (kPaged) {
        missing_ = present != kAll;
        note_present(key, present);
      }
      if (kStages > 1) issue_v(key, share);
    }
    ptx::commit_async();  // an empty group too: the waits count groups
  }

  // Those of V of the same tile.
  __device__ void issue_v(std::int32_t key, const Share& share) const {
    copy(block_.v, p_.a.kv.v_stride, share, tile_of(key) + share_offset() + kValuesOn);
  }

  // All lanes store the same: cheaper than a branch.
  __device__ void note_present(std::int32_t key, std::uint32_t present) const {
    using Bits = std::conditional_t<kShare == 16, std::uint16_t, std::uint8_t>;
    static_assert(kShare == 16 || kShare == 8);
    reinterpret_cast<Bits*>(present_ + slot_of(key))[share() / kShare] = static_cast<Bits>(present);
  }

  const AttentionParams& p_;
  const PrefillBlock& block_;
  std::uint32_t ring_;
  std::uint64_t* present_;
  std::int32_t pages_ = -1, next_ = -1;
  bool missing_ = false;  // of the tile under way, in this warp's share
  bool holes_ = false;    // in the tile that was waited for
};

}  // namespace tilewise::cuda::tile
