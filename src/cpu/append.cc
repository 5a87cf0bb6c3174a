// The append of an attention call: its new K/V rows go to the end of each request's keys. Rows
// whose slot is missing are not written; attention reads them from the caller's rows
// (key_source.h).
#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/kv_view.h"
#include "cpu/backend.h"
#include "cpu/convert_row.h"
#include "cpu/key_source.h"
#include "cpu/parallel.h"

namespace tilewise::cpu {
namespace {

void append_row(const KeySource& source, std::int64_t row) {
  const core::Attention& a = *source.call;
  const std::int64_t key = source.first_new + row;
  if (key < 0) return;  // more rows than keys: the first ones have no place
  const core::KvLocation at = core::locate(a.kv, source.cache, key);
  if (at.block < 0) return;
  const KeyRun from{KeyOrigin::kNew, {0, row}, 1};
  for (std::int64_t head = 0; head < a.kv_heads; ++head) {
    void* k = element_address(a.kv.k, a.kv_dtype, core::k_offset(a.kv, at, head));
    void* v = element_address(a.kv.v, a.kv_dtype, core::v_offset(a.kv, at, head));
    convert_row(k, a.kv_dtype, k_rows(source, from, head).data, a.append.dtype, a.head_dim);
    convert_row(v, a.kv_dtype, v_rows(source, from, head).data, a.append.dtype, a.v_head_dim);
  }
}

}  // namespace

// Every request in as many parts as there are workers, so that one long request is shared too.
void append_new_rows(const core::Attention& a, const Parallel& parallel) {
  if (a.append.k == nullptr) return;
  const std::int64_t parts = parallel.workers;
  for_each_item(parallel, a.batch * parts, [&a, parts](std::int64_t, std::int64_t item) {
    const KeySource source =
        open_keys(a, static_cast<std::int32_t>(item / parts), core::IgnoreFaults{});
    const std::int64_t part = item % parts;
    const std::int64_t end = source.rows.count * (part + 1) / parts;
    for (std::int64_t row = source.rows.count * part / parts; row < end; ++row) {
      append_row(source, row);
    }
  });
}

}  // namespace tilewise::cpu
