// The float64 oracles of the small operations: the formulas of tilewise.h, one row or element at a
// time. Values are doubles and are rounded only where the contract names a rounding. Serial; faults
// are not recorded here.
#include <cmath>
#include <cstdint>

#include "core/fault.h"
#include "core/kv_view.h"
#include "core/ops.h"
#include "cpu/backend.h"
#include "cpu/reference_math.h"

namespace tilewise::cpu {
namespace {

constexpr std::int64_t kMaxHeadDim = 512;

struct Values {
  double x[kMaxHeadDim];
};

// A row of the call: where it lies and at which position.
struct Token {
  std::int32_t request;
  core::RequestRows rows;
  std::int64_t row, position;
  bool ragged;

  std::int64_t offset(const core::RowStrides& stride, std::int64_t head) const {
    return core::row_offset(stride, ragged, request, rows, row, head);
  }
  std::int64_t flat() const { return rows.first + row; }
};

// visit(token) for every row. Where neither positions nor starts are given, a request's rows end at
// end_of(r, rows).
template <class Call, class EndOf, class Visit>
void for_each_token(const Call& call, EndOf&& end_of, Visit&& visit) {
  const core::TokenRows& t = call.tokens;
  for (std::int32_t r = 0; r < t.batch; ++r) {
    const core::RequestRows rows =
        core::request_rows(t.q_indptr, t.q_len, t.total_q, t.max_q_len, r, core::IgnoreFaults{});
    for (std::int64_t i = 0; i < rows.count; ++i) {
      Token token{r, rows, i, end_of(r, rows) - rows.count + i, t.q_indptr != nullptr};
      if (call.positions != nullptr) {
        token.position = call.positions[token.flat()];
      } else if (call.start != nullptr) {
        token.position = call.start[r] + i;
      }
      visit(token);
    }
  }
}

void load_values(const core::InputRows& from, core::DType type, const Token& token,
                 std::int64_t head, std::int64_t count, Values* out) {
  const std::int64_t at = token.offset(from.stride, head);
  for (std::int64_t d = 0; d < count; ++d) out->x[d] = load_double(from.data, type, at + d);
}

void store_values(const core::OutputRows& to, core::DType type, const Token& token,
                  std::int64_t head, std::int64_t count, const Values& values) {
  const std::int64_t at = token.offset(to.stride, head);
  for (std::int64_t d = 0; d < count; ++d) store_double(to.data, type, at + d, values.x[d]);
}

double inverse_rms(const Values& values, std::int64_t count, float eps) {
  double sum = 0.0;
  for (std::int64_t d = 0; d < count; ++d) sum += values.x[d] * values.x[d];
  return 1.0 / std::sqrt(sum / static_cast<double>(count) + static_cast<double>(eps));
}

// Weightless: element(x * inv).
void normalise(core::DType type, std::int64_t count, double inverse, Values* values) {
  for (std::int64_t d = 0; d < count; ++d)
    values->x[d] = round_double(type, values->x[d] * inverse);
}

void normalise_weighted(const core::QkPrep& p, const void* weights, Values* values) {
  const double inverse = inverse_rms(*values, p.head_dim, p.eps);
  for (std::int64_t d = 0; d < p.head_dim; ++d) {
    const float stored = core::load_element(weights, p.weight_dtype, d);
    const double w =
        static_cast<double>(p.norm == core::Norm::kOnePlusWeight ? 1.0f + stored : stored);
    double x = values->x[d] * inverse;
    if (p.rounding == core::NormRounding::kTwoStep) x = round_double(p.dtype, x);
    values->x[d] = round_double(p.dtype, x * w);
  }
}

bool in_table(const core::RopeTable& table, std::int64_t position) {
  return table.cos == nullptr || (position >= 0 && position < table.rows);
}

// Rotates the pairs of a row whose values are elements already.
void rotate(const core::RopeTable& table, core::DType type, bool round_products,
            std::int64_t position, Values* values) {
  if (table.cos == nullptr) return;
  const auto product = [&](double x, double y) {
    return round_products ? round_double(type, x * y) : x * y;
  };
  const std::int64_t half = table.rotary_dim / 2;
  for (std::int64_t d = 0; d < half; ++d) {
    const double c = load_double(table.cos, table.dtype,
                                 position * table.cos_row_stride + d * table.cos_element_stride);
    const double s = load_double(table.sin, table.dtype,
                                 position * table.sin_row_stride + d * table.sin_element_stride);
    double& first = values->x[table.pairs == core::PairStyle::kHalves ? d : 2 * d];
    double& second = values->x[table.pairs == core::PairStyle::kHalves ? d + half : 2 * d + 1];
    const double a = first;
    const double b = second;
    first = round_double(type, product(a, c) - product(b, s));
    second = round_double(type, product(b, c) + product(a, s));
  }
}

// Norm and rotation of one row of q or k.
void prepare_row(const core::QkPrep& p, const void* weights, std::int64_t position,
                 Values* values) {
  if (p.norm != core::Norm::kNone) normalise_weighted(p, weights, values);
  rotate(p.rope, p.dtype, p.rounding == core::NormRounding::kTwoStep, position, values);
}

// V of one head, from its own row or from K's before weight and rotation.
void prepare_v(const core::QkPrep& p, const Token& token, std::int64_t head, Values* values) {
  load_values(p.v_mode == core::VMode::kFromRawK ? p.k : p.v, p.dtype, token, head, p.head_dim,
              values);
  if (p.v_mode == core::VMode::kCopy) return;
  normalise(p.dtype, p.head_dim, inverse_rms(*values, p.head_dim, p.eps), values);
}

core::KvLocation slot_of(const core::QkPrep& p, const Token& token) {
  if (!p.has_cache || !in_table(p.rope, token.position)) return core::missing_key();
  if (p.slot_mapping != nullptr) {
    return core::locate_slot(p.kv, p.slot_mapping[token.flat()], 0, core::IgnoreFaults{});
  }
  const core::RequestKv request = core::open_request(p.kv, token.request, core::IgnoreFaults{});
  const bool inside = token.position >= 0 && token.position < request.len;
  return inside ? core::locate(p.kv, request, token.position) : core::missing_key();
}

void store_cached(const core::QkPrep& p, void* base, std::int64_t at, const Values& values) {
  for (std::int64_t d = 0; d < p.head_dim; ++d) store_double(base, p.kv_dtype, at + d, values.x[d]);
}

// V before K: k_out may be k itself, which V still needs.
void prepare_kv(const core::QkPrep& p, const Token& token, std::int64_t head) {
  const core::KvLocation slot = slot_of(p, token);
  Values values;
  if (p.v_out.data != nullptr || slot.block >= 0) {
    prepare_v(p, token, head, &values);
    if (p.v_out.data != nullptr) store_values(p.v_out, p.dtype, token, head, p.head_dim, values);
    if (slot.block >= 0) store_cached(p, p.kv.v, core::v_offset(p.kv, slot, head), values);
  }
  if (!in_table(p.rope, token.position) || (p.k_out.data == nullptr && slot.block < 0)) return;
  load_values(p.k, p.dtype, token, head, p.head_dim, &values);
  prepare_row(p, p.k_weight, token.position, &values);
  if (p.k_out.data != nullptr) store_values(p.k_out, p.dtype, token, head, p.head_dim, values);
  if (slot.block >= 0) store_cached(p, p.kv.k, core::k_offset(p.kv, slot, head), values);
}

void prepare_q(const core::QkPrep& p, const Token& token, std::int64_t head) {
  Values values;
  load_values(p.q, p.dtype, token, head, p.head_dim, &values);
  prepare_row(p, p.q_weight, token.position, &values);
  store_values(p.q_out, p.dtype, token, head, p.head_dim, values);
}

// The merged state of one row and head: weight of a state = exp(lse - maximum).
struct Merge {
  double maximum, sum;
};

std::int64_t lse_offset(const core::MergeStates& m, std::int64_t state, std::int64_t row,
                        std::int64_t head) {
  return state * m.lse_state_stride + row * m.lse_row_stride + head * m.lse_head_stride;
}

Merge open_merge(const core::MergeStates& m, std::int64_t row, std::int64_t head) {
  Merge merge{kMinusInfinity, 0.0};
  for (std::int64_t s = 0; s < m.states; ++s) {
    const double lse = static_cast<double>(m.lse[lse_offset(m, s, row, head)]);
    if (std::isnan(lse) || lse > merge.maximum) merge.maximum = lse;
  }
  for (std::int64_t s = 0; s < m.states; ++s) {
    const double lse = static_cast<double>(m.lse[lse_offset(m, s, row, head)]);
    if (lse != kMinusInfinity) merge.sum += std::exp(lse - merge.maximum);
  }
  return merge;
}

double merged_value(const core::MergeStates& m, const Merge& merge, std::int64_t row,
                    std::int64_t head, std::int64_t d) {
  if (merge.maximum == kMinusInfinity) return 0.0;
  double total = 0.0;
  for (std::int64_t s = 0; s < m.states; ++s) {
    const double lse = static_cast<double>(m.lse[lse_offset(m, s, row, head)]);
    if (lse == kMinusInfinity) continue;
    const std::int64_t at =
        s * m.o_state_stride + row * m.o_row_stride + head * m.o_head_stride + d;
    total += std::exp(lse - merge.maximum) * load_double(m.o, m.dtype, at);
  }
  if (m.sinks == nullptr) return total / merge.sum;
  const double sink = static_cast<double>(m.sinks[head]);
  const double top = sink > merge.maximum ? sink : merge.maximum;
  const double scale = std::exp(merge.maximum - top);
  return total * scale / (merge.sum * scale + std::exp(sink - top));
}

void merge_row(const core::MergeStates& m, std::int64_t row, std::int64_t head) {
  const Merge merge = open_merge(m, row, head);
  const std::int64_t at = row * m.out_row_stride + head * m.out_head_stride;
  for (std::int64_t d = 0; d < m.v_head_dim; ++d) {
    store_double(m.out, m.out_dtype, at + d, merged_value(m, merge, row, head, d));
  }
  if (m.out_lse == nullptr) return;
  const double lse =
      merge.maximum == kMinusInfinity ? kMinusInfinity : merge.maximum + std::log(merge.sum);
  store_double(m.out_lse, core::DType::kFp32,
               row * m.out_lse_row_stride + head * m.out_lse_head_stride, lse);
}

}  // namespace

void reference_qk_prep(const core::QkPrep& p) {
  const bool has_lengths = p.has_cache && p.slot_mapping == nullptr;
  const auto end_of = [&](std::int32_t r, const core::RequestRows& rows) {
    return has_lengths ? core::open_request(p.kv, r, core::IgnoreFaults{}).len : rows.count;
  };
  for_each_token(p, end_of, [&p](const Token& token) {
    const bool rotatable = in_table(p.rope, token.position);
    for (std::int64_t h = 0; h < p.q_heads && p.q_out.data != nullptr && rotatable; ++h)
      prepare_q(p, token, h);
    for (std::int64_t h = 0; h < p.kv_heads; ++h) prepare_kv(p, token, h);
  });
}

void reference_rope(const core::Rope& p) {
  const auto end_of = [](std::int32_t, const core::RequestRows& rows) { return rows.count; };
  for_each_token(p, end_of, [&p](const Token& token) {
    if (!in_table(p.rope, token.position)) return;
    for (std::int64_t h = 0; h < p.heads; ++h) {
      Values values;
      load_values(p.x, p.dtype, token, h, p.head_dim, &values);
      rotate(p.rope, p.dtype, false, token.position, &values);
      store_values(p.out, p.dtype, token, h, p.head_dim, values);
    }
  });
}

void reference_merge_states(const core::MergeStates& m) {
  for (std::int64_t row = 0; row < m.rows; ++row) {
    for (std::int64_t head = 0; head < m.heads; ++head) merge_row(m, row, head);
  }
}

void reference_output_gate(const core::OutputGate& p) {
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t h = 0; h < p.heads; ++h) {
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        const std::int64_t at = row * p.o_row_stride + h * p.o_head_stride + d;
        const double gate =
            load_double(p.gate, p.dtype, row * p.gate_row_stride + h * p.gate_head_stride + d);
        store_double(p.o, p.dtype, at, load_double(p.o, p.dtype, at) * sigmoid(gate));
      }
    }
  }
}

void reference_elementwise(const core::Elementwise& p) {
  const double value = static_cast<double>(p.value);
  for (std::int64_t i = 0; i < p.n; ++i) {
    const double x = load_double(p.x, p.dtype, i);
    store_double(p.x, p.dtype, i,
                 p.op == core::ElementwiseOp::kSoftcap ? soft_cap(x, value) : x * value);
  }
}

}  // namespace tilewise::cpu
