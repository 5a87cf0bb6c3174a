// Where the rows of tw_kv_append go, in its three forms: to the end of each request, by (request,
// position), or by slot.
#pragma once

#include <cstdint>

#include "core/kv_view.h"
#include "core/ops.h"
#include "core/token_rows.h"

namespace tilewise::core {

TW_DEVICE inline bool by_slot(const KvAppend& p) { return p.slot_mapping != nullptr; }
TW_DEVICE inline bool by_pair(const KvAppend& p) { return p.batch_indices != nullptr; }

// Rows of the two mapped forms are counted through, as those of one request.
TW_DEVICE inline TokenRows rows_of(const KvAppend& p) {
  TokenRows rows = p.tokens;
  if (by_slot(p) || by_pair(p)) rows.batch = 1;
  return rows;
}

// The request that place_row() wants for rows of request `r`.
template <class Report>
TW_DEVICE RequestKv open_rows(const KvAppend& p, std::int32_t r, Report&& report) {
  return by_slot(p) || by_pair(p) ? no_request() : open_request(p.kv, r, report);
}

template <class Report>
TW_DEVICE KvLocation place_pair(const KvAppend& p, std::int64_t i, Report&& report) {
  const std::int32_t r = p.batch_indices[i];
  if (r < 0 || r >= p.tokens.batch) {
    report(Fault{r < 0 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kBatchIndex, 0,
                 static_cast<std::int32_t>(i), r});
    return missing_key();
  }
  const RequestKv request = open_request(p.kv, r, report);
  return place_by_position(p.kv, request, p.positions[i], i, report);
}

// The place of row i of a span.
template <class Report>
TW_DEVICE KvLocation place_row(const KvAppend& p, const RequestKv& request, const RowSpan& span,
                               std::int64_t i, Report&& report) {
  if (by_slot(p)) {
    return locate_slot(p.kv, p.slot_mapping[i], static_cast<std::int32_t>(i), report);
  }
  if (by_pair(p)) return place_pair(p, i, report);
  return place_by_position(p.kv, request, request.len - span.rows.count + i, i, report);
}

}  // namespace tilewise::core
