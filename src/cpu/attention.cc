// The driver of the fast CPU attention: appends, cuts the call into work items, runs a body on each
// and stores the rows. Class P blocks pass once over their keys; class D blocks run chunks and fold
// them, alone or shared between workers through the workspace.
#include <cmath>
#include <cstdint>

#include "core/attention.h"
#include "core/rows.h"
#include "cpu/amx/prefill.h"
#include "cpu/backend.h"
#include "cpu/parallel.h"
#include "cpu/partials.h"
#include "cpu/simd/kernels.h"
#include "cpu/tiles.h"
#include "cpu/work_items.h"
#include "plan/cpu_plan.h"
#include "plan/cpu_scratch.h"

namespace tilewise::cpu {
namespace {

struct Driver {
  const core::Attention& a;
  const plan::CpuPlan& plan;
  plan::CpuScratch layout;
  char* workspace;

  WorkCursor* cursor(std::int64_t worker) const {
    return reinterpret_cast<WorkCursor*>(workspace +
                                         static_cast<std::uint64_t>(worker) * plan::kCursorBytes);
  }
  char* worker_scratch(std::int64_t worker) const {
    return workspace + plan.scratch_offset + static_cast<std::uint64_t>(worker) * plan.worker_bytes;
  }
  // Partial of a row and head over a chunk.
  float* slot(const Block& block, std::int64_t row, std::int64_t chunk) const {
    const std::int64_t request_row =
        block.keys.cache.request * plan.decode_request_rows + block.query_row(row);
    const std::int64_t at = (request_row * a.q_heads + block.head(row)) * plan.max_chunks + chunk;
    return reinterpret_cast<float*>(workspace + plan.partials_offset) +
           at * plan::partial_floats(a);
  }
};

static_assert(sizeof(WorkCursor) <= plan::kCursorBytes);

float* floats(char* base, std::uint64_t offset) { return reinterpret_cast<float*>(base + offset); }

// An open item: its rows, and the worker's scratch.
struct OpenItem {
  Block block;
  BlockRows rows;
  BodyScratch body;
  char* scratch;
  bool direct;
};

void open_item(const Driver& driver, const WorkItem& item, std::int64_t worker, OpenItem* open) {
  const plan::CpuScratch& l = driver.layout;
  char* base = driver.worker_scratch(worker);
  open->scratch = base;
  open->direct = item.direct;
  open->block = {open_keys(driver.a, item.request, core::IgnoreFaults{}), item.kv_head, item.first,
                 item.count, base + l.converted};
  open->body = {l.dim_pad,
                l.v_pad,
                floats(base, l.q),
                floats(base, l.scores),
                floats(base, l.output),
                floats(base, l.maximum),
                floats(base, l.sum),
                floats(base, l.decay),
                floats(base, l.k),
                floats(base, l.v),
                floats(base, l.staging)};
  open_rows(open->block, &open->rows);
}

RowState row_state(const OpenItem& open, std::int64_t row) {
  const BodyScratch& s = open.body;
  return {s.maximum[row], s.sum[row], s.output + row * s.v_pad};
}

FoldedRow folded_row(const Driver& driver, const OpenItem& open, std::int64_t row) {
  const plan::CpuScratch& l = driver.layout;
  return {floats(open.scratch, l.fold_maximum) + row, floats(open.scratch, l.fold_sum) + row,
          floats(open.scratch, l.fold_output) + row * l.v_pad};
}

void finish_folded(const Driver& driver, const OpenItem& open, std::int64_t row) {
  const FoldedRow folded = folded_row(driver, open, row);
  finish_row(open.block, row, {*folded.maximum, *folded.sum, folded.output});
}

void attend(const OpenItem& open, core::KeyRange keys) {
  if (open.direct) {
    attend_direct(open.block, open.rows, keys, open.body);
  } else {
    attend_packed(open.block, open.rows, keys, open.body);
  }
}

core::Chunks chunks_of(const Block& block) {
  const core::Attention& a = block.call();
  const core::RequestKv& cache = block.keys.cache;
  const std::int64_t first = core::first_visible_key(a, cache.request, block.keys.rows, cache.len);
  return core::cut_chunks(first, cache.len, a.kv_heads);
}

void run_prefill(const Driver& driver, const OpenItem& open) {
  if (driver.plan.prefill_on_amx) {
    KeyTile tile;
    amx_prefill(open.block, open.rows, &tile, open.scratch + driver.layout.amx);
    return;
  }
  load_queries(open.block, open.body);
  const std::int64_t begin = open.rows.all.begin / kTileKeys * kTileKeys;
  attend(open, {begin, open.rows.all.end});
  for (std::int64_t r = 0; r < open.block.count; ++r) finish_row(open.block, r, row_state(open, r));
}

void run_decode(const Driver& driver, const OpenItem& open) {
  const std::int64_t v_dim = driver.a.v_head_dim;
  const core::Chunks chunks = chunks_of(open.block);
  load_queries(open.block, open.body);
  for (std::int64_t r = 0; r < open.block.count; ++r) {
    clear_fold(folded_row(driver, open, r), v_dim);
  }
  for (std::int64_t c = 0; c < chunks.count; ++c) {
    attend(open, {chunks.chunk_begin(c), chunks.chunk_end(c)});
    for (std::int64_t r = 0; r < open.block.count; ++r) {
      fold_in(row_state(open, r), v_dim, folded_row(driver, open, r));
    }
  }
  for (std::int64_t r = 0; r < open.block.count; ++r) finish_folded(driver, open, r);
}

void run_decode_chunk(const Driver& driver, const OpenItem& open, std::int64_t chunk) {
  const core::Chunks chunks = chunks_of(open.block);
  if (chunk >= chunks.count) return;
  load_queries(open.block, open.body);
  attend(open, {chunks.chunk_begin(chunk), chunks.chunk_end(chunk)});
  for (std::int64_t r = 0; r < open.block.count; ++r) {
    save_partial(row_state(open, r), driver.a.v_head_dim, driver.slot(open.block, r, chunk));
  }
}

void fold_chunks(const Driver& driver, const OpenItem& open) {
  const std::int64_t v_dim = driver.a.v_head_dim;
  const core::Chunks chunks = chunks_of(open.block);
  for (std::int64_t r = 0; r < open.block.count; ++r) {
    const FoldedRow folded = folded_row(driver, open, r);
    clear_fold(folded, v_dim);
    for (std::int64_t c = 0; c < chunks.count; ++c) {
      fold_in(load_partial(driver.slot(open.block, r, c)), v_dim, folded);
    }
    finish_folded(driver, open, r);
  }
}

// body(item, open) for every item, each worker with its own scratch.
template <class Body>
void for_each_open_item(const Driver& driver, const Parallel& parallel, WorkItems::Kind kind,
                        Body&& body) {
  const WorkItems items(driver.a, driver.plan, kind);
  for (std::int64_t w = 0; w < parallel.workers; ++w) *driver.cursor(w) = {0, 0};
  for_each_item(parallel, items.count(), [&](std::int64_t worker, std::int64_t index) {
    const WorkItem item = items.at(index, driver.cursor(worker));
    OpenItem open;
    open_item(driver, item, worker, &open);
    body(item, open);
  });
}

}  // namespace

void run_attention(const core::Attention& a, const plan::CpuPlan& plan, const Parallel& parallel,
                   void* workspace) {
  append_new_rows(a, parallel);
  const Driver driver{a, plan, plan::lay_out_scratch(a, plan), static_cast<char*>(workspace)};
  const Parallel workers{parallel.parallel_for, parallel.user, plan.workers};
  const bool split = plan.sharing == plan::Sharing::kSplit;
  for_each_open_item(driver, workers, WorkItems::Kind::kParts,
                     [&](const WorkItem& item, const OpenItem& open) {
                       if (item.row_class == core::RowClass::kPrefill) {
                         run_prefill(driver, open);
                       } else if (split) {
                         run_decode_chunk(driver, open, item.chunk);
                       } else {
                         run_decode(driver, open);
                       }
                     });
  if (!split) return;
  for_each_open_item(driver, workers, WorkItems::Kind::kWholes,
                     [&](const WorkItem&, const OpenItem& open) { fold_chunks(driver, open); });
}

}  // namespace tilewise::cpu
