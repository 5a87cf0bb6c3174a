// One checked attention call: what api/ hands to the planner and to every backend. Plain data for
// host and device.
#pragma once

#include <cstdint>

#include "core/kv_view.h"
#include "core/rows.h"
#include "core/types.h"
#include "core/visibility.h"

namespace tilewise::core {

struct RowStrides {
  std::int64_t batch, token, head;
};

struct NewKv {
  const void* k;  // null: no append
  const void* v;
  DType dtype;
  RowStrides k_stride, v_stride;
};

struct Attention {
  DType q_dtype, kv_dtype, o_dtype;
  std::int32_t batch, q_heads, kv_heads, head_dim, v_head_dim;
  std::int64_t q_len;            // dense rows of a request
  std::int64_t max_q_len;        // bound of a request's rows
  std::int64_t total_q;          // rows in all (bound if ragged)
  const std::int32_t* q_indptr;  // null: dense
  const void* q;
  RowStrides q_stride;
  void* o;
  RowStrides o_stride;
  float* lse;
  RowStrides lse_stride;
  KvCache kv;
  NewKv append;
  Mask mask;
  Visibility rule;
  float scale, softcap;
  const float* alibi;
  std::int64_t alibi_batch_stride;
  const float* sinks;
  const std::int32_t* q_start;
  const std::int32_t* q_positions;
  RowClass forced_class;

  TW_DEVICE std::int32_t group() const { return q_heads / kv_heads; }
};

// The rows of request `r`: `first` is its first row in q_positions and, if ragged, in q, o and lse.
struct RequestRows {
  std::int64_t first, count;
};

template <class Report>
TW_DEVICE RequestRows request_rows(const std::int32_t* q_indptr, std::int64_t q_len,
                                   std::int64_t total_q, std::int64_t max_q_len, std::int32_t r,
                                   Report&& report) {
  if (q_indptr == nullptr) return {r * q_len, q_len};
  const IndexSpan span = read_span(q_indptr, r, total_q, FaultWhat::kQIndptr, report);
  if (span.length > max_q_len) {
    report(Fault{FaultCode::kAboveBound, FaultWhat::kQIndptr, r, -1, span.length});
    return {span.begin, max_q_len};
  }
  return {span.begin, span.length};
}

// Offset of row `i` of request `r`, head `h`.
TW_DEVICE inline std::int64_t row_offset(const RowStrides& s, bool ragged, std::int32_t r,
                                         const RequestRows& rows, std::int64_t i, std::int64_t h) {
  return r * s.batch + (ragged ? rows.first + i : i) * s.token + h * s.head;
}

// Absolute position of row `i` of a request with `rows` and `kv_len` keys.
TW_DEVICE inline std::int64_t row_position(const Attention& a, std::int32_t r,
                                           const RequestRows& rows, std::int64_t i,
                                           std::int64_t kv_len) {
  if (a.q_positions != nullptr) return a.q_positions[rows.first + i];
  return (a.q_start != nullptr ? a.q_start[r] : kv_len - rows.count) + i;
}

// First key that any row of a class D request may see: what its chunks start from. With explicit
// positions rows are in no order, so the smallest decides.
TW_DEVICE inline std::int64_t first_visible_key(const Attention& a, std::int32_t r,
                                                const RequestRows& rows, std::int64_t kv_len) {
  if (!a.rule.has_left || rows.count == 0) return 0;
  std::int64_t lowest = row_position(a, r, rows, 0, kv_len);
  if (a.q_positions != nullptr) {
    for (std::int64_t i = 1; i < rows.count; ++i) {
      const std::int64_t pos = row_position(a, r, rows, i, kv_len);
      lowest = pos < lowest ? pos : lowest;
    }
  }
  const std::int64_t first = lowest - a.rule.window_left;
  return first > 0 ? first : 0;
}

}  // namespace tilewise::core
