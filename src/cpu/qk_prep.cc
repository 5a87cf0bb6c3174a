// tw_qk_prep on the CPU. The arithmetic of a head, all in fp32, is a contract that tests emulate
// bit by bit:
//   inv = 1 / sqrt(sum_squares / head_dim + eps)
//   y = element((x * inv) * w), or element(element(x * inv) * w) in two steps; w is 1 + weight
//   where that is the mode rotation of y by the table, see OpsKernels;   V: element(v * inv of its
//   own row, or of raw K)
// A zero row gives 0 if eps > 0, and NaN (0 * inf) if eps is 0.
#include <cmath>
#include <cstdint>

#include "core/kv_view.h"
#include "core/ops.h"
#include "cpu/backend.h"
#include "cpu/convert_row.h"
#include "cpu/rope_row.h"
#include "cpu/rows.h"
#include "cpu/simd/ops.h"

namespace tilewise::cpu {
namespace {

struct Prep {
  const core::QkPrep& call;
  const OpsKernels& kernels;     // of q, k and v
  const OpsKernels& kv_kernels;  // of the cache
  core::Positions positions;
  bool two_step;
  float q_weight[kMaxHeadDim];
  float k_weight[kMaxHeadDim];
};

// Where one row goes.
struct RowPlace {
  std::int64_t position;
  bool rotatable;         // its position is inside the table, or there is no table
  core::KvLocation slot;  // in the cache
};

bool writes_q(const core::QkPrep& p) { return p.q_out.data != nullptr && p.q_heads > 0; }

bool writes_kv(const core::QkPrep& p) {
  return (p.has_cache || p.k_out.data != nullptr || p.v_out.data != nullptr) && p.kv_heads > 0;
}

bool by_position(const core::QkPrep& p) { return p.has_cache && p.slot_mapping == nullptr; }

core::RequestKv open_cache(const core::QkPrep& p, std::int32_t r) {
  return by_position(p) ? core::open_request(p.kv, r, core::IgnoreFaults{}) : core::no_request();
}

// A row without a slot of its own choice (-1) is padding: its position may be anything.
template <class Report>
RowPlace place_row(const Prep& prep, const core::RequestKv& cache, const core::RowSpan& span,
                   std::int64_t i, Report&& report) {
  const core::QkPrep& p = prep.call;
  RowPlace place{0, true, core::missing_key()};
  bool padding = false;
  if (p.slot_mapping != nullptr) {
    const std::int64_t slot = p.slot_mapping[span.flat(i)];
    padding = slot == -1;
    place.slot = core::locate_slot(p.kv, slot, 0, [&](core::Fault fault) {
      fault.request = span.request;
      fault.row = static_cast<std::int32_t>(i);
      report(fault);
    });
  }
  if (p.rope.cos == nullptr && !by_position(p)) return place;
  place.position = prep.positions.of(span, i, cache.len);
  if (p.rope.cos != nullptr) {
    place.rotatable =
        padding ? place.position >= 0 && place.position < p.rope.rows
                : core::check_position(place.position, p.rope.rows, span.request, i, report);
    if (!place.rotatable) {
      place.slot = core::missing_key();
      return place;
    }
  }
  if (by_position(p)) place.slot = core::place_by_position(p.kv, cache, place.position, i, report);
  return place;
}

void record_faults(const Prep& prep, FaultRecord* faults) {
  const core::QkPrep& p = prep.call;
  const FaultRecorder report(faults);
  walk_spans(p.tokens, report, [&](const core::RowSpan& span) {
    if (faults->code != 0) return;
    const core::RequestKv cache =
        by_position(p) ? core::open_request(p.kv, span.request, report) : core::no_request();
    for (std::int64_t i = span.begin; i < span.end && faults->code == 0; ++i) {
      place_row(prep, cache, span, i, report);
    }
  });
}

// One row of the call on its way: what its heads share.
struct Row {
  const Prep& prep;
  const core::RowSpan& span;
  std::int64_t i;
  const RowPlace& place;
  const RopeRow& rope;

  std::int64_t offset(const core::RowStrides& stride, std::int64_t head) const {
    const bool ragged = prep.call.tokens.q_indptr != nullptr;
    return core::row_offset(stride, ragged, span.request, span.rows, i, head);
  }
  const void* input(const core::InputRows& rows, std::int64_t head) const {
    return element_address(rows.data, prep.call.dtype, offset(rows.stride, head));
  }
  void* output(const core::OutputRows& rows, std::int64_t head) const {
    return element_address(rows.data, prep.call.dtype, offset(rows.stride, head));
  }
};

float inverse_rms(const Prep& prep, const float* x) {
  const std::int64_t n = prep.call.head_dim;
  const float mean = prep.kernels.sum_squares(x, n) / static_cast<float>(n);
  return 1.0f / std::sqrt(mean + prep.call.eps);
}

// Norm and rotation of one head of q or k. The result stands in `x` or `y`.
const float* prepare_head(const Row& row, const float* weight, float* x, float* y) {
  const Prep& prep = row.prep;
  const core::QkPrep& p = prep.call;
  float* result = x;
  if (p.norm != core::Norm::kNone) {
    const auto scale =
        prep.two_step ? prep.kernels.scale_weighted_two_step : prep.kernels.scale_weighted;
    scale(x, inverse_rms(prep, x), weight, p.head_dim, y);
    result = y;
  }
  if (p.rope.cos != nullptr) rotate_head(prep.kernels, p.rope, prep.two_step, row.rope, result);
  return result;
}

void prepare_q(const Row& row, std::int64_t head) {
  const Prep& prep = row.prep;
  const core::QkPrep& p = prep.call;
  float x[kMaxHeadDim];
  float y[kMaxHeadDim];
  prep.kernels.load(row.input(p.q, head), p.head_dim, x);
  const float* q = prepare_head(row, prep.q_weight, x, y);
  prep.kernels.store(q, p.head_dim, row.output(p.q_out, head));
}

// V as it came keeps its bytes.
void copy_v(const Row& row, std::int64_t head) {
  const core::QkPrep& p = row.prep.call;
  const void* v = row.input(p.v, head);
  if (p.v_out.data != nullptr && row.output(p.v_out, head) != v) {
    convert_row(row.output(p.v_out, head), p.dtype, v, p.dtype, p.head_dim);
  }
  if (row.place.slot.block < 0) return;
  void* slot = element_address(p.kv.v, p.kv_dtype, core::v_offset(p.kv, row.place.slot, head));
  if (p.kv_dtype == p.dtype) {
    convert_row(slot, p.kv_dtype, v, p.dtype, p.head_dim);
    return;
  }
  float x[kMaxHeadDim];
  row.prep.kernels.load(v, p.head_dim, x);
  row.prep.kv_kernels.store(x, p.head_dim, slot);
}

void store_v(const Row& row, std::int64_t head, const float* x) {
  const core::QkPrep& p = row.prep.call;
  float y[kMaxHeadDim];
  row.prep.kernels.scale(x, inverse_rms(row.prep, x), p.head_dim, y);
  if (p.v_out.data != nullptr) {
    row.prep.kernels.store(y, p.head_dim, row.output(p.v_out, head));
  }
  if (row.place.slot.block >= 0) {
    row.prep.kv_kernels.store(
        y, p.head_dim,
        element_address(p.kv.v, p.kv_dtype, core::v_offset(p.kv, row.place.slot, head)));
  }
}

// Raw K is read once, before K's own result may overwrite it.
void prepare_kv(const Row& row, std::int64_t head) {
  const Prep& prep = row.prep;
  const core::QkPrep& p = prep.call;
  const bool stored = row.place.slot.block >= 0;
  const bool wants_v = p.v_out.data != nullptr || stored;
  const bool wants_k = row.place.rotatable && (p.k_out.data != nullptr || stored);
  float x[kMaxHeadDim];
  float y[kMaxHeadDim];
  if (wants_v && p.v_mode == core::VMode::kCopy) copy_v(row, head);
  if (wants_v && p.v_mode == core::VMode::kRms) {
    prep.kernels.load(row.input(p.v, head), p.head_dim, x);
    store_v(row, head, x);
  }
  const bool raw_k_is_v = wants_v && p.v_mode == core::VMode::kFromRawK;
  if (!wants_k && !raw_k_is_v) return;
  prep.kernels.load(row.input(p.k, head), p.head_dim, x);
  if (raw_k_is_v) store_v(row, head, x);
  if (!wants_k) return;
  const float* k = prepare_head(row, prep.k_weight, x, y);
  if (p.k_out.data != nullptr) prep.kernels.store(k, p.head_dim, row.output(p.k_out, head));
  if (!stored) return;
  prep.kv_kernels.store(
      k, p.head_dim,
      element_address(p.kv.k, p.kv_dtype, core::k_offset(p.kv, row.place.slot, head)));
}

void prepare_span(const Prep& prep, const core::RowSpan& span) {
  const core::QkPrep& p = prep.call;
  const core::RequestKv cache = open_cache(p, span.request);
  RopeRow rope;
  for (std::int64_t i = span.begin; i < span.end; ++i) {
    const RowPlace place = place_row(prep, cache, span, i, core::IgnoreFaults{});
    const Row row{prep, span, i, place, rope};
    if (p.rope.cos != nullptr && place.rotatable) load_rope_row(p.rope, place.position, &rope);
    if (writes_q(p) && place.rotatable) {
      for (std::int64_t h = 0; h < p.q_heads; ++h) prepare_q(row, h);
    }
    if (writes_kv(p)) {
      for (std::int64_t h = 0; h < p.kv_heads; ++h) prepare_kv(row, h);
    }
  }
}

// The norm's weights as floats; 1 + w is a float sum, whatever the type of w.
void load_weights(const core::QkPrep& p, const void* from, float* to) {
  if (p.norm == core::Norm::kNone || from == nullptr) return;
  ops_kernels(p.weight_dtype).load(from, p.head_dim, to);
  if (p.norm != core::Norm::kOnePlusWeight) return;
  for (std::int64_t d = 0; d < p.head_dim; ++d) to[d] += 1.0f;
}

}  // namespace

void run_qk_prep(const core::QkPrep& p, const Parallel& parallel, FaultRecord* faults) {
  // Without an output there is no array whose extent bounds the number of rows.
  if (!writes_q(p) && !writes_kv(p)) return;
  Prep prep{p,
            ops_kernels(p.dtype),
            ops_kernels(p.kv_dtype),
            {p.positions, p.start, by_position(p)},
            p.rounding == core::NormRounding::kTwoStep,
            {},
            {}};
  load_weights(p, p.q_weight, prep.q_weight);
  load_weights(p, p.k_weight, prep.k_weight);
  if (faults != nullptr) record_faults(prep, faults);
  const std::int64_t heads = std::int64_t{p.q_heads} + 2 * std::int64_t{p.kv_heads};
  for_each_span(p.tokens, rows_of_item(heads * p.head_dim), parallel,
                [&prep](const core::RowSpan& span) { prepare_span(prep, span); });
}

}  // namespace tilewise::cpu
