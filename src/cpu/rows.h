// What the small operations share: how the rows of a call are divided among workers, the position
// of a row, and the place of a row in a cache. Faults are found by one serial walk over the same
// functions that the workers use, so the recorded one does not depend on threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/kv_view.h"
#include "core/ops.h"
#include "cpu/parallel.h"

namespace tilewise::cpu {

// Rows [begin, end) of one request.
struct RowSpan {
  std::int32_t request;
  core::RequestRows rows;
  std::int64_t begin, end;

  // Index of row i in arrays of one entry a row (positions, slots).
  std::int64_t flat(std::int64_t i) const { return rows.first + i; }
};

// Whether the rows of a ragged call follow each other without overlap, as they should.
inline bool well_formed(const core::TokenRows& tokens) {
  std::int64_t before = 0;
  for (std::int64_t r = 0; r <= tokens.batch; ++r) {
    const std::int64_t at = tokens.q_indptr[r];
    const bool too_long = r > 0 && at - before > tokens.max_q_len;
    if (at < before || at > tokens.total_q || too_long) return false;
    before = at;
  }
  return true;
}

// Every request's rows in order, on this thread.
template <class Report, class Body>
void walk_spans(const core::TokenRows& tokens, Report&& report, Body&& body) {
  if (tokens.q_indptr == nullptr && tokens.q_len <= 0) return;  // however many requests
  for (std::int32_t r = 0; r < tokens.batch; ++r) {
    const core::RequestRows rows = core::request_rows(tokens.q_indptr, tokens.q_len, tokens.total_q,
                                                      tokens.max_q_len, r, report);
    body(RowSpan{r, rows, 0, rows.count});
  }
}

// Rows of a work item: enough elements (some 10 us of work) to be worth handing over.
inline std::int64_t rows_of_item(std::int64_t elements_of_row) {
  constexpr std::int64_t kElements = 16384;
  return std::clamp<std::int64_t>(kElements / std::max<std::int64_t>(elements_of_row, 1), 1, 256);
}

// Calls body(span) for every row of the call, at most `item_rows` rows at a time. Rows that a
// hostile q_indptr lets overlap go to one worker, in order, so that even they have one result.
template <class Body>
void for_each_span(const core::TokenRows& tokens, std::int64_t item_rows, const Parallel& parallel,
                   Body&& body) {
  const std::int32_t* indptr = tokens.q_indptr;
  if (tokens.batch <= 0) return;
  if (indptr != nullptr && !well_formed(tokens)) {
    walk_spans(tokens, core::IgnoreFaults{}, body);
    return;
  }
  const std::int64_t first = indptr != nullptr ? indptr[0] : 0;
  const std::int64_t last = indptr != nullptr ? indptr[tokens.batch] : tokens.batch * tokens.q_len;
  const std::int64_t items = core::divide_up(last - first, item_rows);
  for_each_item(parallel, items, [&](std::int64_t, std::int64_t item) {
    const std::int64_t begin = first + item * item_rows;
    const std::int64_t end = std::min(begin + item_rows, last);
    std::int64_t r = indptr != nullptr
                         ? std::upper_bound(indptr, indptr + tokens.batch + 1, begin) - indptr - 1
                         : begin / tokens.q_len;
    for (std::int64_t at = begin; at < end; ++r) {
      const std::int64_t row0 = indptr != nullptr ? indptr[r] : r * tokens.q_len;
      const std::int64_t row1 = indptr != nullptr ? indptr[r + 1] : row0 + tokens.q_len;
      const std::int64_t stop = std::min(end, row1);
      body(RowSpan{static_cast<std::int32_t>(r), {row0, row1 - row0}, at - row0, stop - row0});
      at = stop;
    }
  });
}

// Where the positions of a call's rows come from.
struct Positions {
  const std::int32_t* positions;  // of each row, or
  const std::int32_t* start;      // of each request's first row, or
  bool end_aligned;               // the request's rows are its last keys; else they count from 0

  std::int64_t of(const RowSpan& span, std::int64_t i, std::int64_t kv_len) const {
    if (positions != nullptr) return positions[span.flat(i)];
    if (start != nullptr) return std::int64_t{start[span.request]} + i;
    return end_aligned ? kv_len - span.rows.count + i : i;
  }
};

// A position has to be in [0, bound).
template <class Report>
bool check_position(std::int64_t position, std::int64_t bound, std::int32_t request, std::int64_t i,
                    Report&& report) {
  if (position >= 0 && position < bound) return true;
  report(core::Fault{position < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound,
                     core::FaultWhat::kPosition, request, static_cast<std::int32_t>(i), position});
  return false;
}

// Where row i of a request goes whose position is `position`. Released pages and holes (-1) are
// expected; positions past the request's length and page ids outside the pool are faults. All of
// them are missing keys.
template <class Report>
core::KvLocation place_by_position(const core::KvCache& kv, const core::RequestKv& request,
                                   std::int64_t position, std::int64_t i, Report&& report) {
  if (!check_position(position, request.len, request.request, i, report)) {
    return core::missing_key();
  }
  if (kv.layout == core::KvLayout::kPaged) {
    const std::int64_t page = core::page_of(kv, request, position);
    if (page < -1 || page >= kv.num_pages) {
      report(core::Fault{page < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound,
                         core::FaultWhat::kPageId, request.request, static_cast<std::int32_t>(i),
                         page});
    }
  }
  return core::locate(kv, request, position);
}

inline core::RequestKv no_request() { return {0, 0, nullptr, 0, 0, 0}; }

}  // namespace tilewise::cpu
