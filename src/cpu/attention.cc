// The driver of the fast CPU attention: appends, cuts the call into work items,
// runs a body on each and stores the rows. Class P blocks pass once over their
// keys; class D blocks run chunks and fold them, alone or shared between
// workers through the workspace.
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

// An open item: the rows of its KV heads, and the worker's scratch. Rows are
// numbered through all heads in what is kept for them.
struct OpenItem {
  OpenBlock blocks[plan::kDirectHeads];
  std::int64_t heads;
  char* scratch;
  bool direct;
};

BodyScratch body_scratch(const plan::CpuScratch& l, char* base) {
  return {l.dim_pad,
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
}

void open_item(const Driver& driver, const WorkItem& item, std::int64_t worker, OpenItem* open) {
  char* base = driver.worker_scratch(worker);
  const KeySource keys = open_keys(driver.a, item.request, core::IgnoreFaults{});
  const BodyScratch scratch = body_scratch(driver.layout, base);
  open->scratch = base;
  open->heads = item.heads;
  open->direct = item.direct;
  for (std::int32_t i = 0; i < item.heads; ++i) {
    OpenBlock& at = open->blocks[i];
    char* converted = base + driver.layout.converted +
                      static_cast<std::uint64_t>(i) * plan::converted_bytes(driver.a);
    at.block = {keys, item.kv_head + i, item.first, item.count, converted};
    at.scratch = after_rows(scratch, i * item.count);
    open_rows(at.block, &at.rows);
  }
}

// visit(block, row of the block, row of the item) for every row of an item.
template <class Visit>
void for_each_row(const OpenItem& open, Visit&& visit) {
  for (std::int64_t i = 0; i < open.heads; ++i) {
    const OpenBlock& at = open.blocks[i];
    for (std::int64_t r = 0; r < at.block.count; ++r) visit(at, r, i * at.block.count + r);
  }
}

RowState row_state(const OpenBlock& open, std::int64_t row) {
  const BodyScratch& s = open.scratch;
  return {s.maximum[row], s.sum[row], s.output + row * s.v_pad};
}

FoldedRow folded_row(const Driver& driver, const OpenItem& open, std::int64_t item_row) {
  const plan::CpuScratch& l = driver.layout;
  return {floats(open.scratch, l.fold_maximum) + item_row,
          floats(open.scratch, l.fold_sum) + item_row,
          floats(open.scratch, l.fold_output) + item_row * l.v_pad};
}

void finish_folded(const OpenBlock& open, std::int64_t row, const FoldedRow& folded) {
  finish_row(open.block, row, {*folded.maximum, *folded.sum, folded.output});
}

void load_item(const OpenItem& open) {
  for (std::int64_t i = 0; i < open.heads; ++i) load_queries(open.blocks[i]);
}

void attend(const OpenItem& open, core::KeyRange keys) {
  if (open.direct) {
    attend_direct(open.blocks, open.heads, keys);
  } else {
    attend_packed(open.blocks[0], keys);
  }
}

core::Chunks chunks_of(const OpenItem& open) {
  const KeySource& keys = open.blocks[0].block.keys;
  const core::Attention& a = *keys.call;
  const std::int64_t first =
      core::first_visible_key(a, keys.cache.request, keys.rows, keys.cache.len);
  return core::cut_chunks(first, keys.cache.len, a.kv_heads);
}

void run_prefill(const Driver& driver, const OpenItem& open) {
  const OpenBlock& at = open.blocks[0];
  if (driver.plan.prefill_on_amx) {
    KeyTile tile;
    amx_prefill(at.block, at.rows, &tile, open.scratch + driver.layout.amx);
    return;
  }
  load_item(open);
  const std::int64_t begin = at.rows.all.begin / kTileKeys * kTileKeys;
  attend(open, {begin, at.rows.all.end});
  for (std::int64_t r = 0; r < at.block.count; ++r) finish_row(at.block, r, row_state(at, r));
}

void run_decode(const Driver& driver, const OpenItem& open) {
  const std::int64_t v_dim = driver.a.v_head_dim;
  const core::Chunks chunks = chunks_of(open);
  load_item(open);
  for_each_row(open, [&](const OpenBlock&, std::int64_t, std::int64_t item_row) {
    clear_fold(folded_row(driver, open, item_row), v_dim);
  });
  for (std::int64_t c = 0; c < chunks.count; ++c) {
    attend(open, {chunks.chunk_begin(c), chunks.chunk_end(c)});
    for_each_row(open, [&](const OpenBlock& at, std::int64_t r, std::int64_t item_row) {
      fold_in(row_state(at, r), v_dim, folded_row(driver, open, item_row));
    });
  }
  for_each_row(open, [&](const OpenBlock& at, std::int64_t r, std::int64_t item_row) {
    finish_folded(at, r, folded_row(driver, open, item_row));
  });
}

void run_decode_chunk(const Driver& driver, const OpenItem& open, std::int64_t chunk) {
  const core::Chunks chunks = chunks_of(open);
  if (chunk >= chunks.count) return;
  load_item(open);
  attend(open, {chunks.chunk_begin(chunk), chunks.chunk_end(chunk)});
  for_each_row(open, [&](const OpenBlock& at, std::int64_t r, std::int64_t) {
    save_partial(row_state(at, r), driver.a.v_head_dim, driver.slot(at.block, r, chunk));
  });
}

void fold_chunks(const Driver& driver, const OpenItem& open) {
  const std::int64_t v_dim = driver.a.v_head_dim;
  const core::Chunks chunks = chunks_of(open);
  for_each_row(open, [&](const OpenBlock& at, std::int64_t r, std::int64_t item_row) {
    const FoldedRow folded = folded_row(driver, open, item_row);
    clear_fold(folded, v_dim);
    for (std::int64_t c = 0; c < chunks.count; ++c) {
      fold_in(load_partial(driver.slot(at.block, r, c)), v_dim, folded);
    }
    finish_folded(at, r, folded);
  });
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
