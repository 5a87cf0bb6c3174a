// Where the rows of a key come from: its slot in the cache, or, where that slot is missing, the
// rows that the call appends. The one place that knows; the oracle and the kernels walk a request's
// keys through find_keys().
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/kv_view.h"
#include "cpu/convert_row.h"

namespace tilewise::cpu {

// One request's keys. Appended rows must be in the cache before keys are read (append_new_rows).
struct KeySource {
  const core::Attention* call;
  core::RequestKv cache;
  core::RequestRows rows;
  // Key of appended row 0: below 0 if there are more rows than keys, cache.len without an append.
  std::int64_t first_new;
};

template <class Report>
KeySource open_keys(const core::Attention& a, std::int32_t request, Report&& report) {
  KeySource source{&a, core::open_request(a.kv, request, report), {0, 0}, 0};
  source.rows = core::request_rows(a.q_indptr, a.q_len, a.total_q, a.max_q_len, request, report);
  source.first_new = source.cache.len - (a.append.k != nullptr ? source.rows.count : 0);
  return source;
}

enum class KeyOrigin : std::int32_t { kMissing, kCache, kNew };

// Keys whose rows follow each other at one stride, or are all missing.
struct KeyRun {
  KeyOrigin origin;
  core::KvLocation first;  // kNew: {0, row of the append}
  std::int64_t keys;
};

// The run from key `begin` on, up to `end` at most; 0 <= begin < end <= cache.len.
inline KeyRun find_keys(const KeySource& source, std::int64_t begin, std::int64_t end) {
  const core::KvRun run = core::locate_run(source.call->kv, source.cache, begin, end);
  if (run.first.block >= 0) return {KeyOrigin::kCache, run.first, run.keys};
  if (begin >= source.first_new) return {KeyOrigin::kNew, {0, begin - source.first_new}, run.keys};
  const std::int64_t before_new = source.first_new - begin;
  return {KeyOrigin::kMissing, core::missing_key(), before_new < run.keys ? before_new : run.keys};
}

// Rows of a run for one KV head: row i at data + i * stride elements of `type`. Values of another
// type than the cache's count as rounded to it: what is attended is what the cache would hold.
struct KeyRows {
  const void* data;
  core::DType type;
  std::int64_t stride;
};

// Rows of the append: `base` and `stride` are its K or V.
inline KeyRows new_rows(const KeySource& source, const KeyRun& run, std::int64_t kv_head,
                        const void* base, const core::RowStrides& stride) {
  const core::Attention& a = *source.call;
  const std::int64_t at = core::row_offset(stride, a.q_indptr != nullptr, source.cache.request,
                                           source.rows, run.first.row, kv_head);
  return {element_address(base, a.append.dtype, at), a.append.dtype, stride.token};
}

// `run` must not be missing.
inline KeyRows k_rows(const KeySource& source, const KeyRun& run, std::int64_t kv_head) {
  const core::Attention& a = *source.call;
  if (run.origin == KeyOrigin::kNew) {
    return new_rows(source, run, kv_head, a.append.k, a.append.k_stride);
  }
  const std::int64_t at = core::k_offset(a.kv, run.first, kv_head);
  return {element_address(a.kv.k, a.kv_dtype, at), a.kv_dtype, a.kv.k_stride.token};
}

inline KeyRows v_rows(const KeySource& source, const KeyRun& run, std::int64_t kv_head) {
  const core::Attention& a = *source.call;
  if (run.origin == KeyOrigin::kNew) {
    return new_rows(source, run, kv_head, a.append.v, a.append.v_stride);
  }
  const std::int64_t at = core::v_offset(a.kv, run.first, kv_head);
  return {element_address(a.kv.v, a.kv_dtype, at), a.kv_dtype, a.kv.v_stride.token};
}

}  // namespace tilewise::cpu
