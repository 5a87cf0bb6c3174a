// tw_rope: rotary embedding alone, in place or not; bit for bit what the CPU computes. A row with a
// position outside the table is left as it is.
#pragma once

#include <cstdint>

#include "core/ops.h"
#include "core/token_rows.h"
#include "cuda/kernel/any/elements.cuh"
#include "cuda/kernel/any/teams.cuh"
#include "cuda/kernel/any/token_faults.cuh"
#include "cuda/ptx/cluster.cuh"

namespace tilewise::cuda::kernel {

struct RopeParams {
  core::Rope call;
  core::FaultRecord* faults;
  std::int32_t team;
  bool wide_table;  // a group of cosines or sines can be loaded at once
};

// kCount cosines or sines from element `index` on.
template <std::int32_t kCount>
__device__ inline void load_table(const RopeParams& p, const void* data, std::int64_t index,
                                  std::int64_t stride, float* x) {
  if (p.wide_table) {
    load_group<kCount>(data, p.call.rope.dtype, index, x);
    return;
  }
#pragma unroll
  for (std::int32_t i = 0; i < kCount; ++i) {
    x[i] = core::load_element(data, p.call.rope.dtype, index + i * stride);
  }
}

__device__ inline void rotate_pair(float cosine, float sine, float& a, float& b) {
  const float x = a, y = b;
  a = x * cosine - y * sine;
  b = y * cosine + x * sine;
}

// Turns kPairs pairs, from pair `pair` on, of the head at element `from` of x into that at `to` of
// out.
template <std::int32_t kPairs>
__device__ inline void rotate_pairs(const RopeParams& p, std::int64_t position, std::int32_t pair,
                                    std::int64_t from, std::int64_t to) {
  const core::Rope& call = p.call;
  const core::RopeTable& table = call.rope;
  const bool halves = table.pairs == core::PairStyle::kHalves;
  const std::int32_t first = halves ? pair : 2 * pair;
  const std::int32_t second = halves ? pair + table.rotary_dim / 2 : first + kPairs;
  float x[2 * kPairs], cosine[kPairs], sine[kPairs];
  load_table<kPairs>(p, table.cos,
                     position * table.cos_row_stride + pair * table.cos_element_stride,
                     table.cos_element_stride, cosine);
  load_table<kPairs>(p, table.sin,
                     position * table.sin_row_stride + pair * table.sin_element_stride,
                     table.sin_element_stride, sine);
  load_group<kPairs>(call.x.data, call.dtype, from + first, x);
  load_group<kPairs>(call.x.data, call.dtype, from + second, x + kPairs);
#pragma unroll
  for (std::int32_t i = 0; i < kPairs; ++i) {
    if (halves) {
      rotate_pair(cosine[i], sine[i], x[i], x[kPairs + i]);
    } else {
      rotate_pair(cosine[i], sine[i], x[2 * i], x[2 * i + 1]);
    }
  }
  store_group<kPairs>(call.out.data, call.dtype, to + first, x);
  store_group<kPairs>(call.out.data, call.dtype, to + second, x + kPairs);
}

// kPairs: pairs, and elements of the tail, that a thread does at a time.
template <std::int32_t kPairs>
__global__ void __launch_bounds__(kOpThreads) rope(const __grid_constant__ RopeParams p) {
  ptx::wait_for_grid();
  const core::Rope& call = p.call;
  check_requests(call.tokens, p.faults, [](std::int32_t, const tile::Report&) {});
  const TeamThread thread = team_thread(p.team);
  if (thread.row >= call.tokens.total_q) return;
  const core::RowSpan span = core::find_row(call.tokens, thread.row);
  if (span.begin == span.end) return;
  const std::int64_t i = span.begin;
  const std::int64_t position = core::Positions{call.positions, call.start, false}.of(span, i, 0);
  const tile::Report report{thread.lane == 0 ? p.faults : nullptr};
  if (!core::check_position(position, call.rope.rows, span.request, i, report)) return;

  const bool ragged = call.tokens.q_indptr != nullptr;
  const std::int32_t turned = call.rope.rotary_dim / 2 / kPairs;
  const std::int32_t kept = (call.head_dim - call.rope.rotary_dim) / kPairs;
  for (GroupWalk at(thread, turned + kept); at.head < call.heads; at.next()) {
    const std::int64_t from =
        core::row_offset(call.x.stride, ragged, span.request, span.rows, i, at.head);
    const std::int64_t to =
        core::row_offset(call.out.stride, ragged, span.request, span.rows, i, at.head);
    if (at.group < turned) {
      rotate_pairs<kPairs>(p, position, at.group * kPairs, from, to);
    } else {
      const std::int32_t element = call.rope.rotary_dim + (at.group - turned) * kPairs;
      float x[kPairs];
      load_group<kPairs>(call.x.data, call.dtype, from + element, x);
      store_group<kPairs>(call.out.data, call.dtype, to + element, x);
    }
  }
}

}  // namespace tilewise::cuda::kernel
