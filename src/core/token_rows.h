// The rows of a small operation: which request a row belongs to, its position, and where a row of
// K and V goes in a cache.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/kv_view.h"
#include "core/ops.h"

namespace tilewise::core {

// Rows [begin, end) of one request.
struct RowSpan {
  std::int32_t request;
  RequestRows rows;
  std::int64_t begin, end;

  // Index of row i in arrays of one entry a row (positions, slots).
  TW_DEVICE std::int64_t flat(std::int64_t i) const { return rows.first + i; }
};

// Row `flat` (below 2^31) of a call of one request or more, as a span of one row. The span is
// empty, but its flat(begin) still is `flat`, if no request has the row; a q_indptr that does not
// rise may leave rows without one. Never gives a row to two requests.
TW_DEVICE inline RowSpan find_row(const TokenRows& tokens, std::int64_t flat) {
  std::int32_t low = 0;
  if (tokens.q_indptr == nullptr) {
    low = static_cast<std::int32_t>(static_cast<std::uint32_t>(flat) /
                                    static_cast<std::uint32_t>(tokens.q_len));
  } else {
    for (std::int32_t high = tokens.batch; high - low > 1;) {
      const std::int32_t middle = low + (high - low) / 2;
      if (tokens.q_indptr[middle] <= flat) {
        low = middle;
      } else {
        high = middle;
      }
    }
  }
  const RequestRows rows = request_rows(tokens.q_indptr, tokens.q_len, tokens.total_q,
                                        tokens.max_q_len, low, IgnoreFaults{});
  const std::int64_t i = flat - rows.first;
  return {low, rows, i, i >= 0 && i < rows.count ? i + 1 : i};
}

// Where the positions of a call's rows come from.
struct Positions {
  const std::int32_t* positions;  // of each row, or
  const std::int32_t* start;      // of each request's first row, or
  bool end_aligned;               // the request's rows are its last keys; else they count from 0

  TW_DEVICE std::int64_t of(const RowSpan& span, std::int64_t i, std::int64_t kv_len) const {
    if (positions != nullptr) return positions[span.flat(i)];
    if (start != nullptr) return std::int64_t{start[span.request]} + i;
    return end_aligned ? kv_len - span.rows.count + i : i;
  }
};

// A position has to be in [0, bound).
template <class Report>
TW_DEVICE bool check_position(std::int64_t position, std::int64_t bound, std::int32_t request,
                              std::int64_t i, Report&& report) {
  if (position >= 0 && position < bound) return true;
  report(Fault{position < 0 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kPosition,
               request, static_cast<std::int32_t>(i), position});
  return false;
}

// Where row i of a request goes whose position is `position`. Released pages and holes (-1) are
// expected; positions past the request's length and page ids outside the pool are faults. All of
// them are missing keys.
template <class Report>
TW_DEVICE KvLocation place_by_position(const KvCache& kv, const RequestKv& request,
                                       std::int64_t position, std::int64_t i, Report&& report) {
  if (!check_position(position, request.len, request.request, i, report)) return missing_key();
  if (kv.layout == KvLayout::kPaged) {
    const std::int64_t page = page_of(kv, request, position);
    if (page < -1 || page >= kv.num_pages) {
      report(Fault{page < 0 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kPageId,
                   request.request, static_cast<std::int32_t>(i), page});
    }
  }
  return locate(kv, request, position);
}

TW_DEVICE constexpr RequestKv no_request() { return {0, 0, nullptr, 0, 0, 0}; }

}  // namespace tilewise::core
