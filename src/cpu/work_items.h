// Work items of an attention call: which rows of which request, KV head and
// chunk. Ragged calls say on the device how many rows a request has, so items
// are found by walking the requests; a worker's items ascend, so it walks each
// request once.
#pragma once

#include <cstdint>

#include "core/attention.h"
#include "core/rows.h"
#include "plan/cpu_plan.h"

namespace tilewise::cpu {

struct WorkItem {
  std::int32_t request, kv_head, heads;  // KV heads [kv_head, kv_head + heads)
  std::int64_t first, count;             // packed rows
  std::int64_t chunk;                    // class D shared by chunks
  core::RowClass row_class;
  bool direct;  // the body for few rows; follows from the request's own rows
};

// Where a worker stands in the list.
struct WorkCursor {
  std::int64_t first_item;
  std::int32_t request;
};

class WorkItems {
 public:
  // kParts: an item for every chunk that a class D request may have, if the
  // plan shares them. kWholes: class D requests only, one item for all chunks
  // of a block.
  enum class Kind { kParts, kWholes };

  WorkItems(const core::Attention& a, const plan::CpuPlan& plan, Kind kind);

  std::int64_t count() const { return count_; }
  WorkItem at(std::int64_t item, WorkCursor* cursor) const;

 private:
  struct Request {
    core::RowClass row_class;
    bool direct;
    std::int64_t packed_rows, block_rows, blocks, chunks, heads,
        items;  // heads: of an item
  };
  Request describe(std::int32_t request) const;

  const core::Attention& a_;
  const plan::CpuPlan& plan_;
  Kind kind_;
  std::int64_t count_;
};

}  // namespace tilewise::cpu
