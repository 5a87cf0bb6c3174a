// The faults of an attention call, found in one serial pass before it runs: which one is recorded
// then depends on the arrays alone, never on threads or kernels. The order is that of requests, and
// inside a request that of reading: lengths and table, rows, q_start, page ids, mask.
#include <cstdint>

#include "core/attention.h"
#include "core/fault.h"
#include "core/kv_view.h"
#include "core/visibility.h"
#include "cpu/backend.h"
#include "cpu/key_source.h"

namespace tilewise::cpu {
namespace {

bool overlaps(const core::KeyRange& page, const core::KeyRange& keys) {
  return keys.begin < keys.end && page.begin < keys.end && keys.begin < page.end;
}

core::KeyRange row_range(const KeySource& source, std::int64_t row) {
  const core::Attention& a = *source.call;
  const std::int64_t pos =
      core::row_position(a, source.cache.request, source.rows, row, source.cache.len);
  return core::visible_keys(a.rule, pos, source.cache.len);
}

// The smallest range that holds every key that some row sees or that the call appends.
core::KeyRange touched_keys(const KeySource& source) {
  const std::int64_t first_new = source.first_new > 0 ? source.first_new : 0;
  core::KeyRange all{first_new, source.cache.len};
  for (std::int64_t row = 0; row < source.rows.count; ++row) {
    const core::KeyRange range = row_range(source, row);
    if (range.begin >= range.end) continue;
    if (all.begin >= all.end) all = range;
    if (range.begin < all.begin) all.begin = range.begin;
    if (range.end > all.end) all.end = range.end;
  }
  return all;
}

// Whether any key of `page` is seen or appended. Rows with explicit positions may leave gaps.
bool touches(const KeySource& source, const core::KeyRange& page) {
  if (overlaps(page, {source.first_new, source.cache.len})) return true;
  for (std::int64_t row = 0; row < source.rows.count; ++row) {
    if (overlaps(page, row_range(source, row))) return true;
  }
  return false;
}

// The first bad page id that matters ends the walk: the record holds one fault.
template <class Report>
void check_page_ids(const KeySource& source, Report&& report) {
  const core::KvCache& kv = source.call->kv;
  const core::KeyRange touched = touched_keys(source);
  if (kv.layout != core::KvLayout::kPaged || touched.begin >= touched.end) return;
  const std::int64_t last = (touched.end - 1) / kv.page_size;
  for (std::int64_t page = touched.begin / kv.page_size; page <= last; ++page) {
    const core::KeyRange keys{page * kv.page_size, (page + 1) * kv.page_size};
    const std::int64_t id = core::page_of(kv, source.cache, keys.begin);
    if ((id >= -1 && id < kv.num_pages) || !touches(source, keys)) continue;
    const core::FaultCode code = id < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound;
    const auto slot = static_cast<std::int32_t>(page - source.cache.first_page);
    report(core::Fault{code, core::FaultWhat::kPageId, source.cache.request, slot, id});
    return;
  }
}

template <class Report>
void check_q_start(const KeySource& source, Report&& report) {
  const core::Attention& a = *source.call;
  const std::int32_t r = source.cache.request;
  if (a.append.k == nullptr || source.rows.count == 0) return;
  if (source.first_new < 0) {
    report(core::Fault{core::FaultCode::kNegative, core::FaultWhat::kPosition, r, 0,
                       source.first_new});
  }
  if (a.q_start != nullptr && a.q_start[r] != source.first_new) {
    report(core::Fault{core::FaultCode::kDisagrees, core::FaultWhat::kQStart, r, -1, a.q_start[r]});
  }
}

// Mask rows that leave the mask's stated extent.
template <class Report>
void check_mask(const KeySource& source, Report&& report) {
  const core::Attention& a = *source.call;
  const core::Mask& mask = a.mask;
  if (mask.data == nullptr || mask.bytes == 0) return;
  const std::int32_t r = source.cache.request;
  for (std::int64_t row = 0; row < source.rows.count; ++row) {
    for (std::int32_t head = 0; head < a.q_heads; ++head) {
      bool inside = true;
      core::mask_row(mask, r, head, row, &inside);
      if (inside) continue;
      const std::int64_t base = mask.offset != nullptr ? mask.offset[r] : r * mask.batch_stride;
      report(core::Fault{base < 0 ? core::FaultCode::kNegative : core::FaultCode::kAboveBound,
                         core::FaultWhat::kMask, r, static_cast<std::int32_t>(row), base});
      return;
    }
  }
}

}  // namespace

void record_attention_faults(const core::Attention& a, FaultRecord* faults) {
  if (faults == nullptr) return;
  const FaultRecorder report(faults);
  for (std::int32_t r = 0; r < a.batch && faults->code == 0; ++r) {
    const KeySource source = open_keys(a, r, report);
    check_q_start(source, report);
    check_page_ids(source, report);
    check_mask(source, report);
  }
}

}  // namespace tilewise::cpu
