// The K and V tiles of a prefill block on their way to shared memory: every warp copies its share of
// the keys of a tile, all warps read all of it. With one stage K of the next tile comes while
// weights are made and multiplied with V, and V while Q and K are; with more, whole tiles come ahead.
#pragma once

#include <cstdint>

#include "cuda/tile/kv_rows.cuh"
#include "cuda/tile/prefill_block.cuh"

namespace tilewise::cuda::tile {

template <std::int32_t kDim, class Shape, bool kPaged>
class PrefillRing {
  static constexpr std::int32_t kKeys = Shape::kShape.keys;
  static constexpr std::int32_t kStages = Shape::kShape.stages;
  static constexpr std::int32_t kWarps = Shape::kShape.threads() / 32;
  static constexpr std::int32_t kShare = kKeys / kWarps;
  static constexpr std::int32_t kTileBytes = kKeys * kDim * 2;
  // Page ids are asked for two tiles before their rows.
  static constexpr std::int32_t kAhead = 2;

 public:
  // `present` tells which keys of the tiles in flight are there: 64 bits a slot, in shared memory.
  static constexpr std::int32_t kSlots = kStages + 1;

  __device__ PrefillRing(const AttentionParams& p, const PrefillBlock& block, const KeySpan& seen,
                         const PrefillMemory& memory, std::uint64_t* present)
      : rows_(p, block.request, block.kv_head, seen),
        end_(seen.end),
        next_(seen.begin & -kKeys),
        present_(reinterpret_cast<std::uint8_t*>(present)) {
    const std::int32_t share = static_cast<std::int32_t>(threadIdx.x / 32) * kShare;
    share_ = share;
    base_ = memory.ring;
    if (kPaged) {
      for (std::int32_t i = 0; i < kAhead; ++i) pages_[i] = rows_.page(next_ + i * kKeys + share);
    }
    if (kStages == 1) {
      issue_k();
      ptx::commit_async();
    } else {
      for (std::int32_t i = 1; i < kStages; ++i) issue_both();
    }
  }

  // K of the next tile is there for all warps, with more than one stage V too.
  __device__ std::uint32_t next_keys() {
    ptx::wait_async < kStages <= 2 ? 0 : kStages - 2 > ();
    __syncthreads();
    const std::uint32_t tile = stage(take_);
    slot_taken_ = take_slot_;
    take_ = take_ + 1 < kStages ? take_ + 1 : 0;
    take_slot_ = take_slot_ + 1 < kSlots ? take_slot_ + 1 : 0;
    if (kStages == 1) {
      rows_.copy_v(found_, base_ + share_offset() + kTileBytes);
      ptx::commit_async();
    } else {
      issue_both();
    }
    return tile;
  }

  // V of the tile is there.
  __device__ void wait_values() {
    if (kStages > 1) return;
    ptx::wait_async<0>();
    __syncthreads();
    issue_k();
    ptx::commit_async();
  }

  // Which keys of the tile that next_keys() gave are there.
  __device__ std::uint64_t present() const {
    if (!kPaged) return ~std::uint64_t{0};
    return reinterpret_cast<const std::uint64_t*>(present_)[slot_taken_];
  }

  static constexpr std::uint32_t kValuesOn = kTileBytes;  // V's tile lies behind K's

 private:
  __device__ std::uint32_t stage(std::int32_t i) const {
    return base_ + static_cast<std::uint32_t>(i * 2 * kTileBytes);
  }
  __device__ std::uint32_t share_offset() const {
    return static_cast<std::uint32_t>(share_ * kDim * 2);
  }

  // Finds the rows of the next tile and starts the copies of K.
  __device__ void issue_k() {
    if (next_ >= end_) return;
    std::int32_t page = 0;
    if (kPaged) {
      page = pages_[0];
      pages_[0] = pages_[1];
      pages_[1] = rows_.page(next_ + kAhead * kKeys + share_);
    }
    found_ = rows_.find(next_ + share_, page);
    next_ += kKeys;
    rows_.copy_k(found_, stage(put_) + share_offset());
    if (kPaged && threadIdx.x % 32 == 0) {
      for (std::int32_t i = 0; i < kShare / 8; ++i)
        present_[put_slot_ * 8 + share_ / 8 + i] = static_cast<std::uint8_t>(found_.present >> 8 * i);
    }
    put_slot_ = put_slot_ + 1 < kSlots ? put_slot_ + 1 : 0;
  }

  __device__ void issue_both() {
    if (next_ < end_) {
      issue_k();
      rows_.copy_v(found_, stage(put_) + share_offset() + kTileBytes);
      put_ = put_ + 1 < kStages ? put_ + 1 : 0;
    }
    ptx::commit_async();  // an empty group too: the waits count groups
  }

  KeyRows<kDim, kShare, kPaged> rows_;
  std::int32_t end_, next_, share_;
  std::int32_t put_ = 0, take_ = 0, put_slot_ = 0, take_slot_ = 0, slot_taken_ = 0;
  std::uint32_t base_;
  std::uint8_t* present_;
  FoundRows found_{};
  std::int32_t pages_[kAhead];
};

}  // namespace tilewise::cuda::tile
