// Rows of K and V from one array to another, each element as it is or rounded once: tw_kv_append,
// and the conversion of an attention call's appended rows. All rows are of whole groups at aligned
// addresses (api/ asks for that).
#pragma once

#include <cstdint>

#include "core/append_rows.h"
#include "core/ops.h"
#include "core/token_rows.h"
#include "cuda/kernel/any/elements.cuh"
#include "cuda/kernel/any/teams.cuh"
#include "cuda/kernel/any/token_faults.cuh"
#include "cuda/ptx/cluster.cuh"

namespace tilewise::cuda::kernel {

// Blocks of an SM that registers are to be shared by: left to itself ptxas wants 6, and spills.
constexpr std::int32_t kKvBlocks = 4;

struct KvAppendParams {
  core::KvAppend call;
  core::FaultRecord* faults;
  std::int32_t team;
};

struct ConvertParams {
  core::TokenRows tokens;
  core::NewKv rows;
  core::DType to_type;
  void* k;
  void* v;
  std::int32_t kv_heads, head_dim, v_head_dim;
  std::int32_t team;
};

// The heads of one row in an array; `offset`: of the first head, in elements.
template <class Data>
struct HeadRow {
  Data* data;
  core::DType type;
  std::int64_t offset, head_stride;

  __device__ Data* at(std::int64_t head, std::int32_t element) const {
    return element_address(data, type, offset + head * head_stride + element);
  }
};

__device__ inline void copy_heads(const HeadRow<void>& to, const HeadRow<const void>& from,
                                  std::int32_t heads, std::int32_t dim, const TeamThread& thread) {
  for (GroupWalk at(thread, dim / kGroup); at.head < heads; at.next()) {
    const void* source = from.at(at.head, at.group * kGroup);
    void* target = to.at(at.head, at.group * kGroup);
    if (from.type == to.type) {
      copy_group<kGroup>(target, source, from.type);
    } else {
      float x[kGroup];
      load_group<kGroup>(source, from.type, 0, x);
      store_group<kGroup>(target, to.type, 0, x);
    }
  }
}

// Row `span.begin` of appended K or V.
__device__ inline HeadRow<const void> appended_row(const void* data, core::DType type,
                                                   const core::RowStrides& stride, bool ragged,
                                                   const core::RowSpan& span) {
  return {data, type, core::row_offset(stride, ragged, span.request, span.rows, span.begin, 0),
          stride.head};
}

static __global__ void __launch_bounds__(kOpThreads, kKvBlocks)
    kv_append(const __grid_constant__ KvAppendParams p) {
  ptx::wait_for_grid();
  const core::KvAppend& call = p.call;
  const core::TokenRows tokens = core::rows_of(call);
  check_requests(tokens, p.faults, [&](std::int32_t r, const tile::Report& report) {
    core::open_rows(call, r, report);
  });
  const TeamThread thread = team_thread(p.team);
  if (thread.row >= tokens.total_q) return;
  const core::RowSpan span = core::find_row(tokens, thread.row);
  if (span.begin == span.end) return;
  const core::RequestKv request = core::open_rows(call, span.request, core::IgnoreFaults{});
  const core::KvLocation place = core::place_row(
      call, request, span, span.begin, tile::Report{thread.lane == 0 ? p.faults : nullptr});
  if (place.block < 0) return;
  const bool ragged = tokens.q_indptr != nullptr;
  const core::NewKv& rows = call.rows;
  copy_heads({call.kv.k, call.kv_dtype, core::k_offset(call.kv, place, 0), call.kv.k_stride.head},
             appended_row(rows.k, rows.dtype, rows.k_stride, ragged, span), call.kv_heads,
             call.head_dim, thread);
  copy_heads({call.kv.v, call.kv_dtype, core::v_offset(call.kv, place, 0), call.kv.v_stride.head},
             appended_row(rows.v, rows.dtype, rows.v_stride, ragged, span), call.kv_heads,
             call.v_head_dim, thread);
}

// Rows that no request has are converted too, so that nobody reads what was never written.
static __global__ void __launch_bounds__(kOpThreads, kKvBlocks)
    convert_rows(const __grid_constant__ ConvertParams p) {
  ptx::wait_for_grid();
  const TeamThread thread = team_thread(p.team);
  if (thread.row >= p.tokens.total_q) return;
  const core::RowSpan span = core::find_row(p.tokens, thread.row);
  const bool ragged = p.tokens.q_indptr != nullptr;
  copy_heads({p.k, p.to_type, thread.row * p.kv_heads * p.head_dim, p.head_dim},
             appended_row(p.rows.k, p.rows.dtype, p.rows.k_stride, ragged, span), p.kv_heads,
             p.head_dim, thread);
  copy_heads({p.v, p.to_type, thread.row * p.kv_heads * p.v_head_dim, p.v_head_dim},
             appended_row(p.rows.v, p.rows.dtype, p.rows.v_stride, ragged, span), p.kv_heads,
             p.v_head_dim, thread);
}

}  // namespace tilewise::cuda::kernel
