// Launch choice of the CPU backend. Everything here may be changed for speed:
// the bits of a result do not depend on it.
#include "plan/cpu_plan.h"

#include <algorithm>

#include "core/rows.h"
#include "plan/cpu_scratch.h"
#include "plan/shape.h"
#include "plan/text.h"

namespace tilewise::plan {
namespace {

using core::Status;

// Rows of a block: each converts and transposes its tiles of K and V anew, and its rows of q and
// output should leave L2 to them. 60 rows are 4 to 5 % slower than 120, 240 are 1 to 2 % faster at
// twice the scratch (2,048 keys, head dims 64 and 128, 1 MB of L2).
constexpr std::int64_t kMostRows = 120;
constexpr std::int64_t kFewestRows = 24;
// Items a worker should have at least, so that the last ones to finish do not
// leave others idle.
constexpr std::int64_t kItemsPerWorker = 3;

constexpr std::uint64_t kScratchBudget = std::uint64_t{176} << 20;
constexpr std::uint64_t kPartialsBudget = std::uint64_t{64} << 20;

// Fewest and most rows that a block of a body should have, and what it pads
// them to.
struct BlockLimits {
  std::int64_t fewest, most, group;
};

constexpr BlockLimits kSimdLimits{kFewestRows, kMostRows, kRowGroup};
constexpr BlockLimits kAmxLimits{kAmxBandRows, kAmxBlockRows, kAmxBandRows};

// Rows of a block when `all` packed rows, `request_rows` in a request, are to
// feed `workers`.
std::int64_t rows_of_block(std::int64_t all, std::int64_t request_rows, std::int64_t workers,
                           const BlockLimits& limits) {
  const std::int64_t even = all / product(workers, kItemsPerWorker) + 1;
  const std::int64_t wanted = std::clamp(even, limits.fewest, limits.most);
  return core::round_up(std::min(wanted, std::max<std::int64_t>(request_rows, 1)), limits.group);
}

std::int64_t items_of(std::int64_t request_rows, std::int64_t block_rows,
                      const core::Attention& a) {
  return product(product(core::divide_up(request_rows, block_rows), a.kv_heads), a.batch);
}

bool on_amx(const core::Attention& a) {
  return a.q_dtype == core::DType::kBf16 && a.kv_dtype == core::DType::kBf16;
}

Status choose_variant(const core::Attention& a, const CpuFacts& facts, const Shape& shape,
                      std::int32_t variant, CpuPlan* plan, bool* split_forced) {
  if (variant < 0 || variant > static_cast<std::int32_t>(CpuVariant::kAmxSplit)) {
    return core::invalid_argument("variant", static_cast<long long>(variant),
                                  "0 or a number that tw_attention_explain names (1 to 5)");
  }
  const auto wanted = static_cast<CpuVariant>(variant);
  const bool amx = wanted == CpuVariant::kAmxSelf || wanted == CpuVariant::kAmxSplit;
  if (amx && !facts.amx) {
    return core::unsupported("variant", variant, "AMX tiles only where the CPU and kernel do");
  }
  if (amx && !on_amx(a)) {
    return core::unsupported("variant", variant, "AMX tiles for q and kv of bf16 only");
  }
  plan->variant = wanted;
  plan->prefill_on_amx =
      amx || (wanted == CpuVariant::kAuto && facts.amx && on_amx(a) && shape.prefill);
  *split_forced = wanted == CpuVariant::kSimdSplit || wanted == CpuVariant::kAmxSplit;
  return {};
}

std::uint64_t partials_bytes(const core::Attention& a, const CpuPlan& plan) {
  const std::int64_t floats =
      product(product(plan.decode_slots, plan.max_chunks), partial_floats(a));
  return (static_cast<std::uint64_t>(floats) * sizeof(float) + 255) / 256 * 256;
}

// Items of class D without regard to chunks: the fewest that the call may have.
std::int64_t fewest_items(const core::Attention& a, const Shape& shape, const CpuPlan& plan) {
  // A ragged request may have a single row.
  const std::int64_t rows = product(a.q_indptr != nullptr ? 1 : shape.decode_rows, a.group());
  if (rows > kDirectRows) return items_of(rows, plan.decode_rows, a);
  return product(core::divide_up(a.kv_heads, direct_item_heads(plan, rows)), a.batch);
}

Status choose_sharing(const core::Attention& a, const Shape& shape, bool forced, CpuPlan* plan) {
  plan->direct_heads = shape.decode ? std::min<std::int64_t>(a.kv_heads, kDirectHeads) : 0;
  plan->decode_slots = product(product(shape.decode_rows, a.batch), a.q_heads);
  const std::uint64_t bytes = partials_bytes(a, *plan);
  const std::int64_t enough = product(plan->workers, kItemsPerWorker);
  const bool wanted = shape.decode && plan->workers > 1 && plan->max_chunks > 1 &&
                      fewest_items(a, shape, *plan) < enough && bytes <= kPartialsBudget;
  const bool chosen = plan->variant == CpuVariant::kAuto ? wanted : forced;
  if (chosen && bytes > kPartialsBudget) {
    return Status::error(core::Code::kUnsupported,
                         "variant is %d, whose partial results would take %llu "
                         "bytes, this build "
                         "does up to %llu",
                         static_cast<int>(plan->variant), static_cast<unsigned long long>(bytes),
                         static_cast<unsigned long long>(kPartialsBudget));
  }
  plan->sharing = chosen ? Sharing::kSplit : Sharing::kSelf;
  if (!chosen) plan->decode_slots = 0;
  const std::int64_t parts = chosen ? plan->max_chunks : 1;
  while (plan->workers > 1 && plan->direct_heads > 1 &&
         product(fewest_items(a, shape, *plan), parts) < enough) {
    plan->direct_heads = core::divide_up(plan->direct_heads, 2);
  }
  return {};
}

void choose_workers(const core::Attention& a, const CpuFacts& facts, const Shape& shape,
                    CpuPlan* plan) {
  std::int64_t items = items_of(product(shape.prefill_rows, a.group()), plan->q_tile, a);
  const std::int64_t decode = items_of(product(shape.decode_rows, a.group()), plan->decode_rows, a);
  items += plan->sharing == Sharing::kSplit ? product(decode, plan->max_chunks) : decode;
  const CpuScratch layout = lay_out_scratch(a, *plan);
  plan->worker_bytes = layout.bytes;
  const std::uint64_t fit = kScratchBudget / (plan->worker_bytes + kCursorBytes);
  std::int64_t workers = std::min<std::int64_t>(facts.threads, std::max<std::int64_t>(items, 1));
  workers = std::min(workers, static_cast<std::int64_t>(fit));
  plan->workers = static_cast<std::int32_t>(std::max<std::int64_t>(workers, 1));
}

CpuVariant variant_number(const CpuPlan& plan) {
  const bool split = plan.sharing == Sharing::kSplit;
  if (plan.prefill_on_amx) return split ? CpuVariant::kAmxSplit : CpuVariant::kAmxSelf;
  return split ? CpuVariant::kSimdSplit : CpuVariant::kSimdSelf;
}

const char* variant_name(CpuVariant variant) {
  switch (variant) {
    case CpuVariant::kAuto:
      break;
    case CpuVariant::kReference:
      return "float64 reference";
    case CpuVariant::kSimdSelf:
      return "vector kernels, each block folds its own chunks";
    case CpuVariant::kSimdSplit:
      return "vector kernels, chunks shared between workers";
    case CpuVariant::kAmxSelf:
      return "AMX prefill, each block folds its own chunks";
    case CpuVariant::kAmxSplit:
      return "AMX prefill, chunks shared between workers";
  }
  return "auto";
}

void explain_decode(const core::Attention& a, const Shape& shape, const CpuPlan& plan, Text* text) {
  const std::int64_t packed = product(shape.decode_rows, a.group());
  text->line(
      "decode: up to %lld rows a request (q rows x %d heads of a group); up to %lld: dot "
      "products straight from the cache, more: each tile converted once\n",
      static_cast<long long>(packed), a.group(), static_cast<long long>(kDirectRows));
  text->line(
      "decode chunks: up to %lld a request, whole tiles of %lld keys, cut from its own "
      "visible range\n",
      static_cast<long long>(plan.max_chunks), static_cast<long long>(core::kKeyTile));
  text->line("decode heads: up to %lld KV heads of a request of few rows walk its keys together\n",
             static_cast<long long>(plan.direct_heads));
  if (plan.sharing == Sharing::kSplit) {
    text->line(
        "sharing: split: requests may be few for %d workers, so their "
        "chunks are items\n",
        plan.workers);
  } else {
    text->line("sharing: self: a worker runs and folds all chunks of its rows\n");
  }
}

}  // namespace

Status plan_cpu_attention(const core::Attention& a, const CpuFacts& facts, std::int32_t variant,
                          CpuPlan* plan) {
  *plan = CpuPlan{};
  const Shape shape = shape_of(a);
  bool split_forced = false;
  TW_TRY(choose_variant(a, facts, shape, variant, plan, &split_forced));
  plan->workers = std::max(facts.threads, 1);
  if (plan->variant == CpuVariant::kReference) return {};
  plan->q_tile = rows_of_block(shape.all_prefill, product(shape.prefill_rows, a.group()),
                               plan->workers, plan->prefill_on_amx ? kAmxLimits : kSimdLimits);
  plan->decode_rows = rows_of_block(shape.all_decode, product(shape.decode_rows, a.group()),
                                    plan->workers, kSimdLimits);
  plan->decode_request_rows = shape.decode_rows;
  plan->max_chunks = shape.decode ? core::bound_chunks(a.kv.max_kv_len, a.kv_heads) : 0;
  TW_TRY(choose_sharing(a, shape, split_forced, plan));
  choose_workers(a, facts, shape, plan);
  plan->variant = variant_number(*plan);
  const auto workers = static_cast<std::uint64_t>(plan->workers);
  plan->scratch_offset = (workers * kCursorBytes + 255) / 256 * 256;
  plan->partials_offset = plan->scratch_offset + workers * plan->worker_bytes;
  plan->workspace_bytes = plan->partials_offset;
  if (plan->sharing == Sharing::kSplit) plan->workspace_bytes += partials_bytes(a, *plan);
  return {};
}

std::size_t explain_cpu_attention(const core::Attention& a, const CpuFacts& facts,
                                  const CpuPlan& plan, char* text, std::size_t capacity) {
  Text out(text, capacity);
  const Shape shape = shape_of(a);
  out.line("variant: %d (%s)\n", static_cast<int>(plan.variant), variant_name(plan.variant));
  out.line("isa: %s, AMX tiles %s\n", facts.isa,
           plan.prefill_on_amx ? "in use"
           : facts.amx         ? "not used by this call"
                               : "not there");
  out.line("workers: %d of %d threads\n", plan.workers, facts.threads);
  if (plan.variant != CpuVariant::kReference) {
    if (shape.prefill) {
      const std::int64_t keys =
          plan.prefill_on_amx ? amx_step_keys(a.head_dim, a.v_head_dim) : core::kKeyTile;
      out.line(
          "prefill: %s, blocks of %lld rows (q rows x %d heads of a "
          "group) x tiles of %lld "
          "keys\n",
          plan.prefill_on_amx ? "bf16 tiles" : "float32 tiles converted once a block",
          static_cast<long long>(plan.q_tile), a.group(), static_cast<long long>(keys));
    }
    if (shape.decode) explain_decode(a, shape, plan, &out);
  }
  out.line("workspace: %llu bytes\n", static_cast<unsigned long long>(plan.workspace_bytes));
  return out.length();
}

}  // namespace tilewise::plan
