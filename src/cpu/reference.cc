// The float64 oracle of attention: the formula of tilewise.h, one row and head at a time, in two
// passes over the keys (maximum, then weights), with logits computed again rather than kept. Slow
// and obvious on purpose; allocates nothing. Rows of keys that are not visible are never read.
#include <cmath>
#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/ops.h"
#include "core/visibility.h"
#include "cpu/backend.h"
#include "cpu/key_source.h"
#include "cpu/parallel.h"
#include "cpu/reference_math.h"
#include "cpu/rows.h"

namespace tilewise::cpu {
namespace {

constexpr std::int64_t kMaxHeadDim = 512;

// One row of one query head, and what its logits need.
struct Query {
  std::int32_t head, kv_head;
  std::int64_t row, position;
  double slope;
  bool masked;
  core::MaskRow mask;
  double values[kMaxHeadDim];
};

struct Softmax {
  double maximum, sum;
  double output[kMaxHeadDim];  // sum of exp(logit - maximum) * V
};

void load_row(const core::Attention& a, const KeyRows& rows, std::int64_t i, std::int64_t count,
              double* out) {
  for (std::int64_t d = 0; d < count; ++d) {
    const float value = core::load_element(rows.data, rows.type, i * rows.stride + d);
    out[d] =
        static_cast<double>(rows.type == a.kv_dtype ? value : core::round_to(a.kv_dtype, value));
  }
}

Query open_query(const KeySource& source, std::int32_t head, std::int64_t row) {
  const core::Attention& a = *source.call;
  const std::int32_t r = source.cache.request;
  Query query;
  query.head = head;
  query.kv_head = head / a.group();
  query.row = row;
  query.position = core::row_position(a, r, source.rows, row, source.cache.len);
  query.slope =
      a.alibi != nullptr ? static_cast<double>(a.alibi[r * a.alibi_batch_stride + head]) : 0.0;
  query.masked = a.mask.data != nullptr;
  bool inside = true;
  query.mask =
      query.masked ? core::mask_row(a.mask, r, head, row, &inside) : core::MaskRow{nullptr, 0, 0};
  const std::int64_t at =
      core::row_offset(a.q_stride, a.q_indptr != nullptr, r, source.rows, row, head);
  for (std::int64_t d = 0; d < a.head_dim; ++d)
    query.values[d] = load_double(a.q, a.q_dtype, at + d);
  return query;
}

double logit(const core::Attention& a, const Query& query, std::int64_t key, const double* k) {
  double dot = 0.0;
  for (std::int64_t d = 0; d < a.head_dim; ++d) dot += query.values[d] * k[d];
  double x = static_cast<double>(a.scale) * dot;
  if (a.softcap > 0.0f) x = soft_cap(x, static_cast<double>(a.softcap));
  if (a.alibi != nullptr) x -= query.slope * static_cast<double>(std::abs(query.position - key));
  return x;
}

// visit(logit, run, index in run) for every key that the row sees, ascending.
template <class Visit>
void for_each_visible_key(const KeySource& source, const Query& query, Visit&& visit) {
  const core::Attention& a = *source.call;
  const core::KeyRange range = core::visible_keys(a.rule, query.position, source.cache.len);
  double k[kMaxHeadDim];
  for (std::int64_t begin = range.begin; begin < range.end;) {
    const KeyRun run = find_keys(source, begin, range.end);
    for (std::int64_t i = 0; i < run.keys && run.origin != KeyOrigin::kMissing; ++i) {
      if (query.masked && !core::keeps(query.mask, begin + i)) continue;
      load_row(a, k_rows(source, run, query.kv_head), i, a.head_dim, k);
      visit(logit(a, query, begin + i, k), run, i);
    }
    begin += run.keys;
  }
}

void compute_softmax(const KeySource& source, const Query& query, Softmax* softmax) {
  const core::Attention& a = *source.call;
  double top = kMinusInfinity;
  for_each_visible_key(source, query, [&top](double x, const KeyRun&, std::int64_t) {
    if (std::isnan(x) || x > top) top = x;  // a NaN stays the maximum, and so reaches the output
  });
  softmax->maximum = top;
  softmax->sum = 0.0;
  for (std::int64_t d = 0; d < a.v_head_dim; ++d) softmax->output[d] = 0.0;
  if (top == kMinusInfinity) return;
  double v[kMaxHeadDim];
  for_each_visible_key(source, query, [&](double x, const KeyRun& run, std::int64_t i) {
    const double weight = std::exp(x - top);
    softmax->sum += weight;
    load_row(a, v_rows(source, run, query.kv_head), i, a.v_head_dim, v);
    for (std::int64_t d = 0; d < a.v_head_dim; ++d) softmax->output[d] += weight * v[d];
  });
}

// Factor that turns the accumulated output into the result: 1 / denominator, with the row's sink if
// there is one.
double normaliser(const core::Attention& a, const Query& query, const Softmax& softmax) {
  if (softmax.maximum == kMinusInfinity) return 0.0;
  if (a.sinks == nullptr) return 1.0 / softmax.sum;
  const double sink = static_cast<double>(a.sinks[query.head]);
  const double top = sink > softmax.maximum ? sink : softmax.maximum;
  const double scale = std::exp(softmax.maximum - top);
  return scale / (softmax.sum * scale + std::exp(sink - top));
}

void attend_row(const KeySource& source, std::int32_t head, std::int64_t row) {
  const core::Attention& a = *source.call;
  const std::int32_t r = source.cache.request;
  const bool ragged = a.q_indptr != nullptr;
  const Query query = open_query(source, head, row);
  Softmax softmax;
  compute_softmax(source, query, &softmax);
  const double inverse = normaliser(a, query, softmax);
  const std::int64_t o_at = core::row_offset(a.o_stride, ragged, r, source.rows, row, head);
  for (std::int64_t d = 0; d < a.v_head_dim; ++d) {
    store_double(a.o, a.o_dtype, o_at + d,
                 softmax.output[d] * inverse + 0.0);  // + 0.0: no negative zero
  }
  if (a.lse == nullptr) return;
  const double lse =
      softmax.maximum == kMinusInfinity ? kMinusInfinity : softmax.maximum + std::log(softmax.sum);
  store_double(a.lse, core::DType::kFp32,
               core::row_offset(a.lse_stride, ragged, r, source.rows, row, head), lse);
}

}  // namespace

void reference_attention(const core::Attention& a, const Parallel& parallel) {
  append_new_rows(a, parallel);
  // Requests that a hostile q_indptr lets share rows are done in order, so that even they have one
  // result.
  const core::TokenRows tokens{a.batch, a.q_len, a.total_q, a.max_q_len, a.q_indptr};
  Parallel on = parallel;
  if (a.q_indptr != nullptr && !well_formed(tokens)) on.workers = 1;
  for_each_item(on, std::int64_t{a.batch} * a.q_heads, [&a](std::int64_t, std::int64_t item) {
    const auto request = static_cast<std::int32_t>(item / a.q_heads);
    const auto head = static_cast<std::int32_t>(item % a.q_heads);
    const KeySource source = open_keys(a, request, core::IgnoreFaults{});
    for (std::int64_t row = 0; row < source.rows.count; ++row) attend_row(source, head, row);
  });
}

}  // namespace tilewise::cpu
