// Where a key's row lies: one description of contiguous, packed and paged caches, for K and V
// separately. open_request() reads a request's length and table bounds, clamping what is out of
// bounds; locate() maps a key to its row. Neither ever reads or names memory outside the extents
// that the caller stated.
#pragma once

#include <cstdint>

#include "core/fault.h"
#include "core/host_device.h"

namespace tilewise::core {

enum class KvLayout : std::int32_t { kContiguous, kPacked, kPaged };
enum class KvLengths : std::int32_t { kScalar, kPerRequest, kIndptr, kLastPage };

struct KvStrides {
  std::int64_t batch, token, head;  // batch: of a request (contiguous) or a page (paged)
};

// Checked on the host; the arrays' contents are not.
struct KvCache {
  KvLayout layout;
  KvLengths lengths;
  void* k;
  void* v;
  KvStrides k_stride, v_stride;
  std::int64_t capacity;  // rows: of a request (contiguous), of all (packed); unused when paged
  std::int64_t
      max_kv_len;  // bound of every length, already within the capacity where the host knows it
  std::int64_t kv_len;
  const std::int32_t* kv_lens;
  const std::int32_t* kv_indptr;
  const std::int32_t* last_page_len;
  std::int32_t page_size;
  std::int32_t table_width;
  const std::int32_t* page_table;
  std::int64_t page_row_stride, page_table_rows;
  const std::int32_t* page_rows;
  const std::int32_t* page_indptr;
  std::int64_t page_indices_len;
  const std::int32_t* first_page;
  std::int64_t num_pages;
};

struct RequestKv {
  std::int64_t len;           // keys, absolute
  std::int64_t first_row;     // packed: row of key 0
  const std::int32_t* table;  // paged: this request's entries
  std::int64_t table_len;     // how many of them may be read
  std::int64_t first_page;    // absolute page number of entry 0
  std::int32_t request;
};

struct KvLocation {
  std::int64_t block;  // page, request, or 0; negative: the key is not there
  std::int64_t row;
};

TW_DEVICE constexpr KvLocation missing_key() { return {-1, 0}; }

TW_DEVICE inline std::int64_t k_offset(const KvCache& kv, KvLocation at, std::int64_t head) {
  return at.block * kv.k_stride.batch + at.row * kv.k_stride.token + head * kv.k_stride.head;
}

TW_DEVICE inline std::int64_t v_offset(const KvCache& kv, KvLocation at, std::int64_t head) {
  return at.block * kv.v_stride.batch + at.row * kv.v_stride.token + head * kv.v_stride.head;
}

// Clamps `value` into [0, bound] and reports when it had to.
template <class Report>
TW_DEVICE std::int64_t clamp_reported(std::int64_t value, std::int64_t bound, Fault fault,
                                      Report&& report) {
  if (value >= 0 && value <= bound) return value;
  fault.code = value < 0 ? FaultCode::kNegative : FaultCode::kAboveBound;
  fault.value = value;
  report(fault);
  return value < 0 ? 0 : bound;
}

struct IndexSpan {
  std::int64_t begin, length;
};

// Entries [indptr[r], indptr[r+1]) inside [0, extent); a falling pair is empty.
template <class Report>
TW_DEVICE IndexSpan read_span(const std::int32_t* indptr, std::int32_t r, std::int64_t extent,
                              FaultWhat what, Report&& report) {
  const Fault fault{FaultCode::kNone, what, r, -1, 0};
  const std::int64_t begin = clamp_reported(indptr[r], extent, fault, report);
  const std::int64_t end = clamp_reported(indptr[r + 1], extent, fault, report);
  if (end < begin) {
    report(Fault{FaultCode::kDisagrees, what, r, -1, end});
    return {begin, 0};
  }
  return {begin, end - begin};
}

template <class Report>
TW_DEVICE void open_table(const KvCache& kv, RequestKv& request, Report&& report) {
  const std::int32_t r = request.request;
  if (kv.page_indptr != nullptr) {
    const IndexSpan span =
        read_span(kv.page_indptr, r, kv.page_indices_len, FaultWhat::kPageIndptr, report);
    request.table = kv.page_table + span.begin;
    request.table_len = span.length;
  } else {
    const std::int64_t row = kv.page_rows != nullptr ? kv.page_rows[r] : r;
    const bool inside = row >= 0 && row < kv.page_table_rows;
    if (!inside) {
      report(Fault{row < 0 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kPageRow, r,
                   -1, row});
    }
    request.table = kv.page_table + (inside ? row : 0) * kv.page_row_stride;
    request.table_len = inside ? kv.table_width : 0;
  }
  if (kv.first_page != nullptr) {
    const Fault fault{FaultCode::kNone, FaultWhat::kFirstPage, r, -1, 0};
    request.first_page = clamp_reported(kv.first_page[r], INT32_MAX, fault, report);
  }
}

template <class Report>
TW_DEVICE std::int64_t read_length(const KvCache& kv, RequestKv& request, Report&& report) {
  const std::int32_t r = request.request;
  switch (kv.lengths) {
    case KvLengths::kScalar:
      return kv.kv_len;
    case KvLengths::kPerRequest:
      return kv.kv_lens[r];
    case KvLengths::kIndptr: {
      const std::int64_t extent = kv.layout == KvLayout::kPacked ? kv.capacity : INT32_MAX;
      const IndexSpan span = read_span(kv.kv_indptr, r, extent, FaultWhat::kKvIndptr, report);
      request.first_row = span.begin;
      return span.length;
    }
    case KvLengths::kLastPage:
      break;
  }
  if (request.table_len == 0) return request.first_page * kv.page_size;
  const std::int64_t last = kv.last_page_len[r];
  const bool inside = last >= 1 && last <= kv.page_size;
  if (!inside) {
    report(Fault{last < 1 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kLastPageLen,
                 r, -1, last});
  }
  const std::int64_t rows = inside ? last : last < 1 ? 0 : kv.page_size;
  return (request.first_page + request.table_len - 1) * kv.page_size + rows;
}

// Reads what request `r` says of itself; the result is safe to use whatever the arrays hold.
template <class Report>
TW_DEVICE RequestKv open_request(const KvCache& kv, std::int32_t r, Report&& report) {
  RequestKv request{0, 0, nullptr, 0, 0, r};
  if (kv.layout == KvLayout::kPaged) open_table(kv, request, report);
  const std::int64_t length = read_length(kv, request, report);
  std::int64_t bound = kv.max_kv_len;
  if (kv.layout == KvLayout::kPaged) {
    const std::int64_t resident = (request.first_page + request.table_len) * kv.page_size;
    bound = resident < bound ? resident : bound;
  }
  request.len =
      clamp_reported(length, bound, Fault{FaultCode::kNone, FaultWhat::kKvLen, r, -1, 0}, report);
  return request;
}

// Keys and slots are below 2^31, whose division is cheap on a GPU.
TW_DEVICE constexpr KvLocation split_by_page(std::int64_t j, std::int32_t page_size) {
  const auto key = static_cast<std::uint32_t>(j);
  const auto rows = static_cast<std::uint32_t>(page_size);
  return {key / rows, key % rows};
}

// Page id of key `j`'s page as the table states it, or -1 where the table has no entry for it.
TW_DEVICE inline std::int64_t page_of(const KvCache& kv, const RequestKv& request, std::int64_t j) {
  const std::int64_t slot = split_by_page(j, kv.page_size).block - request.first_page;
  return slot >= 0 && slot < request.table_len ? request.table[slot] : -1;
}

// Row of key `j`, 0 <= j < request.len. Released pages, holes and bad page ids are missing keys.
TW_DEVICE inline KvLocation locate(const KvCache& kv, const RequestKv& request, std::int64_t j) {
  if (kv.layout == KvLayout::kContiguous) return {request.request, j};
  if (kv.layout == KvLayout::kPacked) return {0, request.first_row + j};
  const std::int64_t page = page_of(kv, request, j);
  if (page < 0 || page >= kv.num_pages) return missing_key();
  return {page, split_by_page(j, kv.page_size).row};
}

// A run of keys whose rows follow each other at the token stride, or are all missing.
struct KvRun {
  KvLocation first;
  std::int64_t keys;
};

// The longest such run that starts at key `begin` and ends before `end` at a page's edge at the
// latest.
TW_DEVICE inline KvRun locate_run(const KvCache& kv, const RequestKv& request, std::int64_t begin,
                                  std::int64_t end) {
  if (kv.layout != KvLayout::kPaged) return {locate(kv, request, begin), end - begin};
  const std::int64_t page_end = (split_by_page(begin, kv.page_size).block + 1) * kv.page_size;
  return {locate(kv, request, begin), (page_end < end ? page_end : end) - begin};
}

// Row named by a flat slot: page * page_size + offset (paged), or a row of a packed cache.
// -1 is an expected skip; anything else outside the pool is reported.
template <class Report>
TW_DEVICE KvLocation locate_slot(const KvCache& kv, std::int64_t slot, std::int32_t row,
                                 Report&& report) {
  const std::int64_t rows =
      kv.layout == KvLayout::kPaged ? kv.num_pages * kv.page_size : kv.capacity;
  if (slot >= 0 && slot < rows) {
    if (kv.layout != KvLayout::kPaged) return {0, slot};
    return split_by_page(slot, kv.page_size);
  }
  if (slot != -1) {
    report(Fault{slot < 0 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kSlot, 0, row,
                 slot});
  }
  return missing_key();
}

}  // namespace tilewise::core
