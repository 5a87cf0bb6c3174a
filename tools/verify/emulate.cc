// The emulation, one row at a time.
#include "verify/emulate.h"

#include <algorithm>
#include <cmath>

namespace tilewise::verify {
namespace {

struct Row {
  Index r, i, h;
};

float dot(const float* a, const float* b, Index n) {
  float sum = 0;
  for (Index d = 0; d < n; ++d) sum += a[d] * b[d];
  return sum;
}

float logit(const Problem& p, const Row& row, Index j) {
  const Case& c = p.c();
  const float* q = p.q(p.first_row(row.r) + row.i, row.h);
  const float* k = p.k(p.first_key(row.r) + j, row.h / c.group());
  float s = dot(q, k, c.head_dim) * p.scale();
  if (c.softcap != 0) s = c.softcap * std::tanh(s / c.softcap);
  if (c.alibi == Alibi::kNone) return s;
  const Index distance = p.position(row.r, row.i) - j;
  return s - p.slope(row.r, row.h) * static_cast<float>(std::abs(distance));
}

// Writes v_dim numbers to `o` and returns the log of the sum.
float attend_row(const Problem& p, const Row& row, tw_dtype weights, std::vector<Index>* seen,
                 float* o) {
  const Case& c = p.c();
  std::vector<float> s;
  seen->clear();
  for (Index j = 0; j < p.kv_len(row.r); ++j) {
    if (!p.sees(row.r, row.i, row.h, j)) continue;
    seen->push_back(j);
    s.push_back(logit(p, row, j));
  }
  std::fill(o, o + c.v_dim(), 0.0f);
  if (seen->empty()) return -HUGE_VALF;
  // Weights are relative to some reference near the maximum, not to the maximum itself: else the
  // weight of the largest logit would be 1, which is exact in every type, and hide what rounding it
  // costs a kernel whose reference lags behind.
  constexpr float kBehind = 0.7f;
  const float most = *std::max_element(s.begin(), s.end()) - kBehind;
  float sum = 0;
  for (std::size_t n = 0; n < s.size(); ++n) {
    const float weight = std::exp(s[n] - most);
    const auto rounded = static_cast<float>(round_to(weights, static_cast<double>(weight)));
    const float* v = p.v(p.first_key(row.r) + (*seen)[n], row.h / c.group());
    sum += weight;
    for (Index d = 0; d < c.v_dim(); ++d) o[d] += rounded * v[d];
  }
  float divisor = sum, factor = 1;
  if (!p.sinks.empty()) {
    const float sink = at(p.sinks, row.h), top = std::max(most, sink);
    factor = std::exp(most - top);
    divisor = sum * factor + std::exp(sink - top);
  }
  for (Index d = 0; d < c.v_dim(); ++d) o[d] = o[d] * factor / divisor;
  return most + std::log(sum);
}

}  // namespace

tw_dtype weight_type(const Case& c) {
  return c.q_type == TW_DTYPE_FP32 || c.kv_type == TW_DTYPE_FP32 ? TW_DTYPE_FP32 : c.kv_type;
}

Emulation emulate(const Problem& p, tw_dtype weights) {
  const Case& c = p.c();
  Emulation e;
  e.o.resize(static_cast<std::size_t>(p.rows() * c.q_heads * c.v_dim()));
  std::vector<Index> seen;
  float* o = e.o.data();
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index n = 0; n < p.q_len(r) * c.q_heads; ++n) {
      e.lse.push_back(attend_row(p, {r, n / c.q_heads, n % c.q_heads}, weights, &seen, o));
      o += c.v_dim();
    }
  }
  return e;
}

}  // namespace tilewise::verify
