// Work items of an attention call, found by walking the requests.
#include "cpu/work_items.h"

#include <algorithm>

#include "core/fault.h"
#include "plan/cpu_scratch.h"

namespace tilewise::cpu {

WorkItems::WorkItems(const core::Attention& a, const plan::CpuPlan& plan, Kind kind)
    : a_(a), plan_(plan), kind_(kind), count_(0) {
  if (a.q_indptr == nullptr) {
    count_ = describe(0).items * a.batch;
    return;
  }
  for (std::int32_t r = 0; r < a.batch; ++r) count_ += describe(r).items;
}

WorkItems::Request WorkItems::describe(std::int32_t request) const {
  const core::RequestRows rows = core::request_rows(a_.q_indptr, a_.q_len, a_.total_q, a_.max_q_len,
                                                    request, core::IgnoreFaults{});
  Request w{};
  if (rows.count == 0) return w;
  w.row_class = core::row_class(rows.count, a_.forced_class);
  const bool decode = w.row_class == core::RowClass::kDecode;
  if (kind_ == Kind::kWholes && !decode) return w;
  const bool shared = decode && kind_ == Kind::kParts && plan_.sharing == plan::Sharing::kSplit;
  w.packed_rows = rows.count * a_.group();
  w.block_rows = decode ? plan_.decode_rows : plan_.q_tile;
  w.blocks = core::divide_up(w.packed_rows, w.block_rows);
  w.chunks = shared ? plan_.max_chunks : 1;
  w.direct = decode && w.packed_rows <= plan::kDirectRows;
  w.heads = w.direct ? plan::direct_item_heads(plan_, w.packed_rows) : 1;
  w.items = w.blocks * w.chunks * core::divide_up(a_.kv_heads, w.heads);
  return w;
}

WorkItem WorkItems::at(std::int64_t item, WorkCursor* cursor) const {
  Request w = describe(a_.q_indptr == nullptr ? 0 : cursor->request);
  if (a_.q_indptr == nullptr) {
    cursor->request = static_cast<std::int32_t>(item / w.items);
    cursor->first_item = cursor->request * w.items;
  }
  while (item >= cursor->first_item + w.items) {
    cursor->first_item += w.items;
    w = describe(++cursor->request);
  }
  const std::int64_t inside = item - cursor->first_item;
  // Blocks of a prompt pass over the same K and V: one KV head after the other
  // finds them in the L2 (3 to 6 % on AMX tiles at head dim 128).
  const bool decode = w.row_class == core::RowClass::kDecode;
  const std::int64_t groups = core::divide_up(a_.kv_heads, w.heads);
  const std::int64_t steps = w.blocks * w.chunks;
  const std::int64_t head = (decode ? inside % groups : inside / steps) * w.heads;
  const std::int64_t step = decode ? inside / groups : inside % steps;
  // Later rows see more keys under a causal rule: the longest items of a
  // request come first.
  const std::int64_t first = (w.blocks - 1 - step / w.chunks) * w.block_rows;
  return {cursor->request,
          static_cast<std::int32_t>(head),
          static_cast<std::int32_t>(std::min(w.heads, a_.kv_heads - head)),
          first,
          std::min(w.block_rows, w.packed_rows - first),
          step % w.chunks,
          w.row_class,
          w.direct};
}

}  // namespace tilewise::cpu
