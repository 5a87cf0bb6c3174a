// tw_kv_append on the CPU: rows of K and V to their places in a cache, in one of three forms: to
// the end of each request, by (request, position), or by slot. A row whose place is missing is not
// written.
#include <cstdint>

#include "core/append_rows.h"
#include "core/kv_view.h"
#include "core/ops.h"
#include "cpu/backend.h"
#include "cpu/convert_row.h"
#include "cpu/rows.h"
#include "cpu/simd/ops.h"

namespace tilewise::cpu {
namespace {

// visit(i, place) for the rows of a span.
template <class Report, class Visit>
void place_rows(const core::KvAppend& p, const core::RowSpan& span, Report&& report,
                Visit&& visit) {
  const core::RequestKv request = core::open_rows(p, span.request, report);
  for (std::int64_t i = span.begin; i < span.end; ++i) {
    visit(i, core::place_row(p, request, span, i, report));
  }
}

// How rows of the append become rows of the cache: the same bytes, or one rounding.
struct Writer {
  const core::KvAppend& call;
  const OpsKernels& from;
  const OpsKernels& to;

  void write(const void* row, std::int64_t count, void* slot) const {
    if (call.rows.dtype == call.kv_dtype) {
      convert_row(slot, call.kv_dtype, row, call.rows.dtype, count);
      return;
    }
    float x[kMaxHeadDim];
    from.load(row, count, x);
    to.store(x, count, slot);
  }
};

void append_span(const Writer& writer, const core::RowSpan& span) {
  const core::KvAppend& p = writer.call;
  const bool ragged = p.tokens.q_indptr != nullptr;
  place_rows(p, span, core::IgnoreFaults{}, [&](std::int64_t i, core::KvLocation place) {
    if (place.block < 0) return;
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      const auto row = [&](const void* data, const core::RowStrides& stride) {
        const std::int64_t at = core::row_offset(stride, ragged, span.request, span.rows, i, h);
        return element_address(data, p.rows.dtype, at);
      };
      writer.write(row(p.rows.k, p.rows.k_stride), p.head_dim,
                   element_address(p.kv.k, p.kv_dtype, core::k_offset(p.kv, place, h)));
      writer.write(row(p.rows.v, p.rows.v_stride), p.v_head_dim,
                   element_address(p.kv.v, p.kv_dtype, core::v_offset(p.kv, place, h)));
    }
  });
}

}  // namespace

void run_kv_append(const core::KvAppend& p, const Parallel& parallel, FaultRecord* faults) {
  const core::TokenRows rows = core::rows_of(p);
  if (faults != nullptr) {
    const FaultRecorder report(faults);
    walk_spans(rows, report, [&](const core::RowSpan& span) {
      if (faults->code != 0) return;
      place_rows(p, span, report, [](std::int64_t, core::KvLocation) {});
    });
  }
  const Writer writer{p, ops_kernels(p.rows.dtype), ops_kernels(p.kv_dtype)};
  const std::int64_t elements = (std::int64_t{p.head_dim} + p.v_head_dim) * p.kv_heads;
  for_each_span(rows, rows_of_item(elements), parallel,
                [&writer](const core::RowSpan& span) { append_span(writer, span); });
}

}  // namespace tilewise::cpu
