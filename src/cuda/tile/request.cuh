// One request as a block sees it: its keys and rows, what its packed rows see, its faults, and the
// append of its new rows. Packed row p of a request and KV head is query row p / group of head
// kv_head * group + p % group.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "cuda/tile/params.h"

namespace tilewise::cuda::tile {

constexpr float kLog2e = 1.44269504088896340736f;

// Keeps the first fault of a record that was clear; `record` may be null.
struct Report {
  core::FaultRecord* record;

  __device__ void operator()(const core::Fault& fault) const {
    if (record == nullptr) return;
    if (atomicCAS(&record->code, 0, static_cast<std::int32_t>(fault.code)) != 0) return;
    record->what = static_cast<std::int32_t>(fault.what);
    record->request = fault.request;
    record->row = fault.row;
    record->value = fault.value;
  }
};

struct Request {
  core::RequestKv cache;
  core::RequestRows rows;
  // Key of appended row 0: below 0 if there are more rows than keys, cache.len without an append.
  std::int64_t first_new;

  __device__ std::int32_t index() const { return cache.request; }
};

__device__ inline Request open_request(const core::Attention& a, std::int32_t r,
                                       const Report& report) {
  Request request{core::open_request(a.kv, r, report), {0, 0}, 0};
  request.rows = core::request_rows(a.q_indptr, a.q_len, a.total_q, a.max_q_len, r, report);
  request.first_new = request.cache.len - (a.append.k != nullptr ? request.rows.count : 0);
  return request;
}

// Query row and head of a packed row. Counts of packed rows are below 2^31 (the planner checks).
struct PackedRow {
  std::int64_t row;
  std::int32_t head;
};

__device__ inline PackedRow unpack(const AttentionParams& p, std::int32_t kv_head,
                                   std::int64_t packed) {
  const auto at = static_cast<std::uint32_t>(packed);
  const std::uint32_t row = p.group.quotient(at);
  return {row, static_cast<std::int32_t>(static_cast<std::uint32_t>(kv_head) * p.group.divisor() +
                                         p.group.remainder(at, row))};
}

// Keys as kernels count them: lengths are below 2^31 - 127 there, so that a tile past the last key
// has a number too.
struct KeySpan {
  std::int32_t begin, end;  // empty if begin >= end
};

// What one packed row sees and where it stands.
struct RowInfo {
  std::int32_t begin, end;  // keys
  std::int64_t position;
  core::MaskRow mask;
  float slope_log2;  // ALiBi slope * log2(e); 0 without
};

__device__ inline RowInfo row_info(const AttentionParams& p, const Request& request,
                                   std::int64_t packed, std::int32_t kv_head) {
  const core::Attention& a = p.a;
  RowInfo info{0, 0, 0, {nullptr, 0, 0}, 0.0f};
  const auto [row, head] = unpack(p, kv_head, packed);
  if (row >= request.rows.count) return info;
  info.position = core::row_position(a, request.index(), request.rows, row, request.cache.len);
  const core::KeyRange range = core::visible_keys(a.rule, info.position, request.cache.len);
  info.begin = static_cast<std::int32_t>(range.begin);
  info.end = static_cast<std::int32_t>(range.end);
  if (a.mask.data != nullptr) {
    bool inside;
    info.mask = core::mask_row(a.mask, request.index(), head, row, &inside);
  }
  if (a.alibi != nullptr) {
    info.slope_log2 = a.alibi[request.index() * a.alibi_batch_stride + head] * kLog2e;
  }
  return info;
}

// Whether the row sees `key`, a key that is there.
__device__ inline bool sees(const core::Attention& a, const RowInfo& row, std::int32_t key) {
  if (key < row.begin || key >= row.end) return false;
  return a.mask.data == nullptr || core::keeps(row.mask, key);
}

// The logit of a visible key in log2 units, from the raw product: scale, soft-cap, ALiBi.
__device__ inline float transform(const AttentionParams& p, const RowInfo& row, std::int64_t key,
                                  float product) {
  float x = product * p.scale_log2;
  if (p.a.softcap != 0.0f) {
    x = p.a.softcap * kLog2e * tanhf(product * p.a.scale / p.a.softcap);
  }
  if (p.a.alibi != nullptr) {
    const std::int64_t distance = row.position > key ? row.position - key : key - row.position;
    x -= row.slope_log2 * static_cast<float>(distance);
  }
  return x;
}

// Faults of a request that no loader meets: an append that disagrees with q_start, and mask rows
// outside the mask. Every thread of one block of the request calls it.
__device__ inline void check_request(const core::Attention& a, const Request& request,
                                     const Report& report) {
  const std::int32_t r = request.index();
  if (a.append.k != nullptr && request.rows.count > 0 && threadIdx.x == 0) {
    if (request.first_new < 0) {
      report(core::Fault{core::FaultCode::kNegative, core::FaultWhat::kPosition, r, 0,
                         request.first_new});
    }
    if (a.q_start != nullptr && a.q_start[r] != request.first_new) {
      report(
          core::Fault{core::FaultCode::kDisagrees, core::FaultWhat::kQStart, r, -1, a.q_start[r]});
    }
  }
  if (a.mask.data == nullptr || a.mask.bytes == 0 || report.record == nullptr) return;
  for (std::int64_t i = threadIdx.x; i < request.rows.count * a.q_heads; i += blockDim.x) {
    bool inside;
    core::mask_row(a.mask, r, static_cast<std::int32_t>(i % a.q_heads), i / a.q_heads, &inside);
    if (inside) continue;
    const std::int64_t base = a.mask.offset != nullptr ? a.mask.offset[r] : r * a.mask.batch_stride;
    report(core::Fault{base < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound,
                       core::FaultWhat::kMask, r, static_cast<std::int32_t>(i / a.q_heads), base});
  }
}

template <class T>
__device__ inline T* element(const void* base, core::DType type, std::int64_t index) {
  const char* at = static_cast<const char*>(base) + index * core::size_of(type);
  return reinterpret_cast<T*>(const_cast<char*>(at));
}

// Reports the page id of `key` if it is neither a page nor a hole.
__device__ inline void report_page(const core::KvCache& kv, const core::RequestKv& request,
                                   std::int64_t key, const Report& report) {
  if (kv.layout != core::KvLayout::kPaged) return;
  const std::int64_t id = core::page_of(kv, request, key);
  if (id >= -1 && id < kv.num_pages) return;
  const auto slot = static_cast<std::int32_t>(key / kv.page_size - request.first_page);
  report(core::Fault{id < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound,
                     core::FaultWhat::kPageId, request.request, slot, id});
}

// Copies `bytes` (a multiple of 16) of one row, all lanes of a warp together.
__device__ inline void copy_row(void* to, const void* from, std::int32_t bytes) {
  for (std::int32_t i = threadIdx.x % 32; i < bytes / 16; i += 32) {
    static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
  }
}

// Writes appended rows [begin, end) of one KV head to their slots, a warp a row. Attention reads
// keys from `first_new` on from the caller's rows, so nobody waits for these writes.
__device__ inline void append_rows(const core::Attention& a, const Request& request,
                                   std::int32_t kv_head, std::int64_t begin, std::int64_t end,
                                   const Report& report) {
  if (a.append.k == nullptr) return;
  const bool ragged = a.q_indptr != nullptr;
  const std::int32_t warps = blockDim.x / 32;
  for (std::int64_t row = begin + threadIdx.x / 32; row < end; row += warps) {
    const std::int64_t key = request.first_new + row;
    if (key < 0) continue;  // more rows than keys: the first ones have no place
    const core::KvLocation at = core::locate(a.kv, request.cache, key);
    if (at.block < 0) {
      report_page(a.kv, request.cache, key, report);
      continue;
    }
    const std::int64_t k_from =
        core::row_offset(a.append.k_stride, ragged, request.index(), request.rows, row, kv_head);
    const std::int64_t v_from =
        core::row_offset(a.append.v_stride, ragged, request.index(), request.rows, row, kv_head);
    const std::int32_t bytes = core::size_of(a.kv_dtype);
    copy_row(element<void>(a.kv.k, a.kv_dtype, core::k_offset(a.kv, at, kv_head)),
             element<const void>(a.append.k, a.kv_dtype, k_from), a.head_dim * bytes);
    copy_row(element<void>(a.kv.v, a.kv_dtype, core::v_offset(a.kv, at, kv_head)),
             element<const void>(a.append.v, a.kv_dtype, v_from), a.v_head_dim * bytes);
  }
}

}  // namespace tilewise::cuda::tile
