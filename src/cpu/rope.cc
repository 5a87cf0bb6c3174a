// tw_rope on the CPU: rotary embedding alone, one rounding for each output (see OpsKernels), in
// place or not. A row with a position outside the table is left as it is.
#include <cstdint>

#include "core/ops.h"
#include "cpu/backend.h"
#include "cpu/convert_row.h"
#include "cpu/rope_row.h"
#include "cpu/rows.h"
#include "cpu/simd/ops.h"

namespace tilewise::cpu {
namespace {

struct Rotation {
  const core::Rope& call;
  const OpsKernels& kernels;
  core::Positions positions;
};

void rotate_row(const Rotation& rotation, const core::RowSpan& span, std::int64_t i,
                const RopeRow& rope) {
  const core::Rope& p = rotation.call;
  const bool ragged = p.tokens.q_indptr != nullptr;
  float x[kMaxHeadDim];
  for (std::int64_t h = 0; h < p.heads; ++h) {
    const auto offset = [&](const core::RowStrides& stride) {
      return core::row_offset(stride, ragged, span.request, span.rows, i, h);
    };
    rotation.kernels.load(element_address(p.x.data, p.dtype, offset(p.x.stride)), p.head_dim, x);
    rotate_head(rotation.kernels, p.rope, false, rope, x);
    rotation.kernels.store(x, p.head_dim,
                           element_address(p.out.data, p.dtype, offset(p.out.stride)));
  }
}

void rotate_span(const Rotation& rotation, const core::RowSpan& span) {
  RopeRow rope;
  for (std::int64_t i = span.begin; i < span.end; ++i) {
    const std::int64_t position = rotation.positions.of(span, i, 0);
    const core::RopeTable& table = rotation.call.rope;
    if (!core::check_position(position, table.rows, span.request, i, core::IgnoreFaults{}))
      continue;
    load_rope_row(table, position, &rope);
    rotate_row(rotation, span, i, rope);
  }
}

}  // namespace

void run_rope(const core::Rope& p, const Parallel& parallel, FaultRecord* faults) {
  if (p.heads <= 0) return;  // no array whose extent bounds the number of rows
  const Rotation rotation{p, ops_kernels(p.dtype), {p.positions, p.start, false}};
  if (faults != nullptr) {
    const FaultRecorder report(faults);
    walk_spans(p.tokens, report, [&](const core::RowSpan& span) {
      for (std::int64_t i = span.begin; i < span.end && faults->code == 0; ++i) {
        core::check_position(rotation.positions.of(span, i, 0), p.rope.rows, span.request, i,
                             report);
      }
    });
  }
  for_each_span(p.tokens, rows_of_item(std::int64_t{p.heads} * p.head_dim), parallel,
                [&rotation](const core::RowSpan& span) { rotate_span(rotation, span); });
}

}  // namespace tilewise::cpu
