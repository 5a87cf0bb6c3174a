// tw_merge_states on the CPU: the fold of core/fold.h for states that carry natural-log LSEs. The
// weight of a state is exp(lse - greatest lse); states are added in ascending order in fp32. A
// single state that saw anything comes back as it was, bit for bit.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/merge.h"
#include "core/ops.h"
#include "core/rows.h"
#include "cpu/backend.h"
#include "cpu/convert_row.h"
#include "cpu/simd/ops.h"

namespace tilewise::cpu {
namespace {

constexpr std::int64_t kPiece = 512;  // elements of a row in work at once

struct Merger {
  const core::MergeStates& call;
  const OpsKernels& from;
  const OpsKernels& to;

  float lse(std::int64_t state, std::int64_t row, std::int64_t head) const {
    return call.lse[state * call.lse_state_stride + row * call.lse_row_stride +
                    head * call.lse_head_stride];
  }
  const void* state_row(std::int64_t state, std::int64_t row, std::int64_t head) const {
    return element_address(
        call.o, call.dtype,
        state * call.o_state_stride + row * call.o_row_stride + head * call.o_head_stride);
  }
  void* out_row(std::int64_t row, std::int64_t head) const {
    return element_address(call.out, call.out_dtype,
                           row * call.out_row_stride + head * call.out_head_stride);
  }
};

// The states' weighted sum times `factor`, by pieces, so that `out` may be a state's own row.
void write_sum(const Merger& m, std::int64_t row, std::int64_t head, float top, float factor) {
  const core::MergeStates& p = m.call;
  for (std::int64_t at = 0; at < p.v_head_dim; at += kPiece) {
    const std::int64_t n = std::min(kPiece, p.v_head_dim - at);
    float sum[kPiece] = {};
    for (std::int64_t s = 0; s < p.states; ++s) {
      const float lse = m.lse(s, row, head);
      if (lse == -INFINITY) continue;
      m.from.accumulate(std::exp(lse - top),
                        element_address(m.state_row(s, row, head), p.dtype, at), n, sum);
    }
    for (std::int64_t d = 0; d < n; ++d) sum[d] *= factor;
    m.to.store(sum, n, element_address(m.out_row(row, head), p.out_dtype, at));
  }
}

// The only state that saw anything.
void copy_state(const Merger& m, std::int64_t row, std::int64_t head, std::int64_t state) {
  const core::MergeStates& p = m.call;
  void* out = m.out_row(row, head);
  if (p.dtype != p.out_dtype) {
    write_sum(m, row, head, m.lse(state, row, head), 1.0f);
  } else if (const void* from = m.state_row(state, row, head); from != out) {
    convert_row(out, p.out_dtype, from, p.dtype, p.v_head_dim);
  }
}

void merge_row(const Merger& m, std::int64_t row, std::int64_t head) {
  const core::MergeStates& p = m.call;
  const float sink = p.sinks != nullptr ? p.sinks[head] : -INFINITY;
  const core::StateWeights w =
      core::weigh_states(p.states, [&](std::int64_t s) { return m.lse(s, row, head); });
  if (w.seen == 1 && sink == -INFINITY) {
    copy_state(m, row, head, w.last);
  } else {
    write_sum(m, row, head, w.top, core::merge_factor(w, sink));
  }
  if (p.out_lse != nullptr) {
    p.out_lse[row * p.out_lse_row_stride + head * p.out_lse_head_stride] = core::merged_lse(w);
  }
}

}  // namespace

void run_merge_states(const core::MergeStates& p, const Parallel& parallel) {
  const Merger merger{p, ops_kernels(p.dtype), ops_kernels(p.out_dtype)};
  const std::int64_t elements = std::int64_t{p.v_head_dim} * std::max(p.states, 1);
  const std::int64_t chunk = std::clamp<std::int64_t>(16384 / elements, 1, 256);
  const std::int64_t all = p.rows * p.heads;
  for_each_item(parallel, core::divide_up(all, chunk), [&](std::int64_t, std::int64_t item) {
    const std::int64_t end = std::min((item + 1) * chunk, all);
    for (std::int64_t i = item * chunk; i < end; ++i) merge_row(merger, i / p.heads, i % p.heads);
  });
}

}  // namespace tilewise::cpu
