// A warp's ring of tiles in shared memory: keeps stages - 1 tiles of its stream on their way while
// it works on one. Nothing in it waits for another warp, and loads run on across chunks.
#pragma once

#include <cstdint>

#include "core/tile_shapes.h"
#include "cuda/tile/decode_block.cuh"
#include "cuda/tile/kv_rows.cuh"

namespace tilewise::cuda::tile {

template <std::int32_t kDim, bool kPaged>
class DecodeRing {
 public:
  struct Tile {
    std::uint32_t k;               // shared address of 16 rows of K; V's follow
    bool full;                     // all keys are there
    const std::uint32_t* present;  // else bit i: key i is there
  };

  // `warp`: of this thread, the same in every lane for the compiler too.
  __device__ DecodeRing(const AttentionParams& p, const DecodeBlock& block, const SeenKeys& seen,
                        const DecodeMemory& memory, std::int32_t warp)
      : rows_(p, block.request, block.kv_head, seen.any),
        ahead_(block, seen.any),
        stages_(p.stages),
        offset_(warp * core::kStreamKeys),
        base_(memory.ring + static_cast<std::uint32_t>(warp * p.stages) * kStageBytes),
        holes_(memory.holes + warp * core::kMostStages) {
    if (kPaged) {
#pragma unroll
      for (std::int32_t i = 0; i < kAhead; ++i) look_ahead(i);
    } else {
      rows_.seek(ahead_.key() + offset_);
    }
  }

  // Starts the first tiles.
  __device__ void fill() {
    for (std::int32_t i = 0; i < max(stages_ - 1, 1); ++i) issue();
  }

  // The next tile of the stream, when it is there.
  __device__ Tile wait() {
    if (stages_ < 3) {
      ptx::wait_async<0>();
    } else if (stages_ == 3) {
      ptx::wait_async<1>();
    } else {
      ptx::wait_async<2>();
    }
    __syncwarp();
    const std::int32_t slot = take_;
    take_ = take_ + 1 < stages_ ? take_ + 1 : 0;
    return {base_ + static_cast<std::uint32_t>(slot) * kStageBytes, (full_ >> slot & 1u) != 0,
            holes_ + slot};
  }

  // Starts one more tile in the place of the one before the last that wait() gave; with a ring of
  // one stage in the place of that one, so after its last use (`used`).
  __device__ void refill(bool used) {
    if (used == (stages_ == 1)) issue();
  }

 private:
  static constexpr std::uint32_t kStageBytes = 2 * core::kStreamKeys * kDim * 2;
  // Page ids are asked for two tiles before their rows: one is too late (measured).
  static constexpr std::int32_t kAhead = 2;

  __device__ void look_ahead(std::int32_t i) {
    key_[i] = -1;
    if (ahead_.done()) return;
    key_[i] = ahead_.key() + offset_;
    page_[i] = rows_.page(key_[i]);
    ahead_.advance();
  }

  __device__ __forceinline__ void issue() {
    const std::uint32_t to = base_ + static_cast<std::uint32_t>(put_) * kStageBytes;
    bool started = false;
    if (kPaged) {
      const std::int32_t key = key_[0], page = page_[0];
      key_[0] = key_[1], page_[0] = page_[1];
      look_ahead(1);
      started = key >= 0;
      if (started) copy_found(key, page, to);
    } else if (!ahead_.done()) {
      const std::int32_t key = ahead_.key() + offset_;
      started = true;
      if (rows_.straight(key)) {
        rows_.copy_k_straight(to);
        rows_.copy_v_straight(to + kStageBytes / 2);
        full_ |= 1u << put_;
      } else {
        copy_found(key, 0, to);
      }
      if (ahead_.advance()) {
        rows_.seek(ahead_.key() + offset_);
      } else {
        rows_.advance(core::kKeyTile);
      }
    }
    if (started) put_ = put_ + 1 < stages_ ? put_ + 1 : 0;
    ptx::commit_async();  // an empty group too: the waits count groups
  }

  __device__ void copy_found(std::int32_t key, std::int32_t page, std::uint32_t to) {
    const FoundRows found = rows_.find(key, page);
    rows_.copy_k(found, to);
    rows_.copy_v(found, to + kStageBytes / 2);
    const bool full = found.present == decltype(rows_)::kAll;
    full_ = (full_ & ~(1u << put_)) | (full ? 1u << put_ : 0u);
    if (!full && threadIdx.x % 32 == 0) holes_[put_] = found.present;
  }

  KeyRows<kDim, core::kStreamKeys, kPaged> rows_;
  TileWalk ahead_;
  std::int32_t stages_, offset_, put_ = 0, take_ = 0;
  std::uint32_t base_;
  std::uint32_t full_ = 0;  // bit s: all keys of stage s are there
  std::uint32_t* holes_;    // [stage]: bit i: key i is there, of stages that are not full
  std::int32_t key_[kAhead];
  std::int32_t page_[kAhead];
};

}  // namespace tilewise::cuda::tile
