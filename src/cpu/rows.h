// How the rows of a small operation are divided among workers. Faults are found by one serial walk
// over the same functions that the workers use, so the recorded one does not depend on threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/ops.h"
#include "core/token_rows.h"
#include "cpu/parallel.h"

namespace tilewise::cpu {

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
    body(core::RowSpan{r, rows, 0, rows.count});
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
      body(
          core::RowSpan{static_cast<std::int32_t>(r), {row0, row1 - row0}, at - row0, stop - row0});
      at = stop;
    }
  });
}

}  // namespace tilewise::cpu
