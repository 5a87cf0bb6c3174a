// A warp's window on the rows of K and V of one request and KV head: finds the rows of a few
// consecutive keys and copies them to shared memory. Lanes 0-15 find rows of K, lanes 16-31 those
// of V. Keys outside `seen` and missing ones are written as zeros, so that what their slots hold,
// NaN included, reaches nobody.
#pragma once

#include <cstdint>

#include "cuda/ptx/math.cuh"
#include "cuda/ptx/memory.cuh"
#include "cuda/tile/request.cuh"

namespace tilewise::cuda::tile {

constexpr std::int32_t kPieceBytes = 16;

// Where piece `c` of row `r` lies in a tile of rows of kPieces pieces: rows are apart by whole
// multiples of 64 bytes, and eight rows' pieces of one column meet eight different bank groups.
template <std::int32_t kPieces>
__device__ constexpr std::int32_t swizzled(std::int32_t r, std::int32_t c) {
  if (kPieces % 8 == 0) return c ^ (r & 7);
  return (c & ~3) | ((c ^ (r >> 1)) & 3);
}

template <std::int32_t kPieces>
__device__ constexpr std::uint32_t piece_offset(std::int32_t r, std::int32_t c) {
  return static_cast<std::uint32_t>((r * kPieces + swizzled<kPieces>(r, c)) * kPieceBytes);
}

// Address of a piece `rows` rows below `first`, the address of one in row r: `rows` is a multiple
// of a power of two above r, and tiles begin at multiples of 128 bytes.
template <std::int32_t kPieces>
__device__ constexpr std::uint32_t rows_on(std::uint32_t first, std::int32_t rows) {
  const std::int32_t mixed = kPieces % 8 == 0 ? (rows & 7) * kPieceBytes : 0;
  return (first ^ static_cast<std::uint32_t>(mixed)) +
         static_cast<std::uint32_t>(rows * kPieces * kPieceBytes);
}

// Address of piece 2 * step + half of a row, for a lane whose row and half are fixed: what varies
// with `step` is one exclusive or with a constant, and an offset.
template <std::int32_t kPieces>
class LanePieces {
 public:
  __device__ LanePieces(std::int32_t row, std::int32_t half)
      : first_(piece_offset<kPieces>(row, half)) {
    ptx::keep(first_);
  }

  __device__ std::uint32_t at(std::uint32_t tile, std::int32_t step) const {
    constexpr std::int32_t kMixed = kPieces % 8 == 0 ? 7 : 3;
    const std::int32_t piece = 2 * step;
    return ((tile + first_) ^ static_cast<std::uint32_t>((piece & kMixed) * kPieceBytes)) +
           static_cast<std::uint32_t>((piece & ~kMixed) * kPieceBytes);
  }

 private:
  std::uint32_t first_;
};

// The rows of kKeys keys (8 or 16), as found.
struct FoundRows {
  const char* row;        // of this lane: of K below lane 16, else of V
  std::uint32_t present;  // bit i: key i is there; the same in every lane
};

template <std::int32_t kDim, std::int32_t kKeys, bool kPaged>
class KeyRows {
 public:
  static constexpr std::int32_t kPieces = kDim * 2 / kPieceBytes;
  static constexpr std::uint32_t kAll = (1u << kKeys) - 1;

  __device__ KeyRows(const AttentionParams& p, const Request& request, std::int32_t kv_head,
                     const KeySpan& seen)
      : kv_(p.a.kv), page_size_(p.page_size), request_(request), seen_(seen), report_{p.faults} {
    const core::Attention& a = p.a;
    const std::int32_t lane = threadIdx.x % 32;
    on_v_ = lane >= 16;
    key_ = lane % kKeys;
    k_pieces_ = a.head_dim * 2 / kPieceBytes;
    v_pieces_ = a.v_head_dim * 2 / kPieceBytes;
    const core::KvLocation first =
        kPaged ? core::KvLocation{0, 0} : core::locate(kv_, request.cache, 0);
    k_ = static_cast<const char*>(kv_.k) + core::k_offset(kv_, first, kv_head) * 2;
    v_ = static_cast<const char*>(kv_.v) + core::v_offset(kv_, first, kv_head) * 2;
    if (kStraight) {
      const std::int32_t r = lane / kPieces, c = lane % kPieces;
      to_ = piece_offset<kPieces>(r, c);
      k_from_ = k_ + r * kv_.k_stride.token * 2 + (c < k_pieces_ ? c * kPieceBytes : 0);
      v_from_ = v_ + r * kv_.v_stride.token * 2 + (c < v_pieces_ ? c * kPieceBytes : 0);
      k_bytes_ = c < k_pieces_ ? kPieceBytes : 0;
      v_bytes_ = c < v_pieces_ ? kPieceBytes : 0;
      ptx::keep(to_);
      ptx::keep(k_from_);
      ptx::keep(v_from_);
    }
    first_new_ = INT32_MAX;
    straight_ = {seen.begin, seen.end - kKeys + 1};
    if (a.append.k == nullptr) return;
    const core::RowStrides& stride = on_v_ ? a.append.v_stride : a.append.k_stride;
    const std::int64_t at =
        core::row_offset(stride, a.q_indptr != nullptr, request.index(), request.rows, 0, kv_head);
    // So that row j of the cache's numbering is at new_ + j * new_bytes_.
    first_new_ = static_cast<std::int32_t>(request.first_new > 0 ? request.first_new : 0);
    new_bytes_ = stride.token * 2;
    new_ = static_cast<const char*>(on_v_ ? a.append.v : a.append.k) + at * 2 -
           request.first_new * new_bytes_;
    straight_.end = min(straight_.end, first_new_ - kKeys + 1);
  }

  // Paged: what the page table says of this lane's key of the kKeys from `key` on. To be asked for
  // a few tiles ahead of find().
  __device__ std::int32_t page(std::int32_t key) const {
    if (!kPaged) return 0;
    const std::int32_t j = key + key_;
    if (j < seen_.begin || j >= seen_.end) return -1;
    const std::int64_t slot = slot_of(j);
    if (slot < 0 || slot >= request_.cache.table_len) return -1;
    return request_.cache.table[slot];
  }

  // Whether the keys from `key` on follow each other in the cache at the token stride, all of them
  // there: then copy_straight() serves them.
  __device__ bool straight(std::int32_t key) const {
    return kStraight && key >= straight_.begin && key < straight_.end;
  }

  // Points at keys from `key` on, for copies of straight keys.
  __device__ void seek(std::int32_t key) {
    k_at_ = k_from_ + key * kv_.k_stride.token * 2;
    v_at_ = v_from_ + key * kv_.v_stride.token * 2;
  }

  __device__ void advance(std::int32_t keys) {
    k_at_ += keys * kv_.k_stride.token * 2;
    v_at_ += keys * kv_.v_stride.token * 2;
  }

  __device__ void copy_k_straight(std::uint32_t to) const {
    copy_straight(to, k_at_, kv_.k_stride.token * 2, k_bytes_);
  }
  __device__ void copy_v_straight(std::uint32_t to) const {
    copy_straight(to, v_at_, kv_.v_stride.token * 2, v_bytes_);
  }

  // Finds the rows of the keys from `key` on; `page` is what page(key) said.
  __device__ FoundRows find(std::int32_t key, std::int32_t page) const {
    const std::int32_t j = key + key_;
    const bool is_new = j >= first_new_;
    bool there = j >= seen_.begin && j < seen_.end;
    const char* row = on_v_ ? v_ : k_;
    const std::int64_t token_bytes = (on_v_ ? kv_.v_stride.token : kv_.k_stride.token) * 2;
    if (kPaged) {
      const bool inside = page >= 0 && page < kv_.num_pages;
      if (there && !inside && page != -1) report_page(j, page);
      there = there && (inside || is_new);
      const std::int64_t page_bytes = (on_v_ ? kv_.v_stride.batch : kv_.k_stride.batch) * 2;
      const auto at = static_cast<std::uint32_t>(j);
      const std::uint32_t in_page = page_size_.remainder(at, page_size_.quotient(at));
      if (inside) row += page * page_bytes + in_page * token_bytes;
    } else if (there) {
      row += j * token_bytes;
    }
    if (is_new && there) row = new_ + j * new_bytes_;
    return {row, __ballot_sync(~0u, there) & kAll};
  }

  __device__ void copy_k(const FoundRows& rows, std::uint32_t to) const {
    copy<false>(rows, to, k_pieces_);
  }

  __device__ void copy_v(const FoundRows& rows, std::uint32_t to) const {
    copy<true>(rows, to, v_pieces_);
  }

 private:
  __device__ std::int64_t slot_of(std::int32_t j) const {
    return page_size_.quotient(static_cast<std::uint32_t>(j)) - request_.cache.first_page;
  }

  __device__ void report_page(std::int32_t j, std::int32_t page) const {
    report_(core::Fault{page < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound,
                        core::FaultWhat::kPageId, request_.index(),
                        static_cast<std::int32_t>(slot_of(j)), page});
  }

  static constexpr std::int32_t kCopies = kKeys * kPieces / 32;
  // Row and column of a lane's pieces differ by constants from one copy to the next.
  static constexpr bool kStraight = !kPaged && 32 % kPieces == 0;
  static constexpr std::int32_t kRowsApart = kPieces <= 32 ? 32 / kPieces : 1;

  // Copies rows that follow each other; `from`: this lane's piece of the first.
  __device__ void copy_straight(std::uint32_t to, const char* from, std::int64_t stride,
                                std::uint32_t bytes) const {
#pragma unroll
    for (std::int32_t i = 0; i < kCopies; ++i) {
      ptx::copy_async_16(rows_on<kPieces>(to + to_, i * kRowsApart), from, bytes);
      from += kRowsApart * stride;
    }
  }

  // Copies piece lane + 32 i of the rows for every i: a row of 256 bytes is fetched whole by half a
  // warp.
  template <bool kV>
  __device__ void copy(const FoundRows& rows, std::uint32_t to, std::int32_t pieces) const {
    const std::int32_t lane = threadIdx.x % 32;
    const auto address = reinterpret_cast<std::uint64_t>(rows.row);
#pragma unroll
    for (std::int32_t i = 0; i < kCopies; ++i) {
      const std::int32_t at = lane + 32 * i;
      const std::int32_t r = at / kPieces, c = at % kPieces;
      const auto* from =
          reinterpret_cast<const char*>(__shfl_sync(~0u, address, r + (kV ? 16 : 0)));
      const bool there = c < pieces && (rows.present >> r & 1u) != 0;
      ptx::copy_async_16(to + piece_offset<kPieces>(r, c), from + (there ? c * kPieceBytes : 0),
                         there ? kPieceBytes : 0);
    }
  }

  const core::KvCache& kv_;
  const core::FastDivide& page_size_;
  const Request& request_;
  KeySpan seen_;
  Report report_;
  const char* k_;  // row of key 0, paged: of page 0
  const char* v_;
  const char *k_from_, *v_from_;  // this lane's piece of key 0
  const char *k_at_, *v_at_;      // and of the keys to be copied next
  KeySpan straight_;              // keys that may begin a straight copy
  std::uint32_t to_, k_bytes_, v_bytes_;
  const char* new_;
  std::int64_t new_bytes_;
  std::int32_t first_new_;  // from this key on rows are the caller's new ones
  std::int32_t key_, k_pieces_, v_pieces_;
  bool on_v_;
};

}  // namespace tilewise::cuda::tile
