// Launch choice of the CUDA backend. Everything here may be changed for speed: the bits of a result
// do not depend on it.
#include "plan/cuda_plan.h"

#include <algorithm>

#include "core/rows.h"
#include "core/tile_shapes.h"
#include "plan/shape.h"
#include "plan/text.h"

namespace tilewise::plan {
namespace {

using core::Status;

constexpr std::int64_t kMostCluster = 16;
// A block of a cluster of 16 must leave room for a second one on its SM: of one a SM only 7 such
// clusters fit on an H200.
constexpr std::int32_t kBlocksOfSm = 2;
constexpr std::int32_t kReservedSharedBytes = 1024 + 128;  // of each block: CUDA's, and static ones
// Rows share blocks through the workspace only where some row may have more keys than this.
constexpr std::int64_t kUnevenKeys = 4096;
// Empty blocks cost: 16,384 of them 10 us on an H200.
constexpr std::int64_t kMostBlocks = 4096;
constexpr std::uint64_t kPartialsBudget = std::uint64_t{128} << 20;
constexpr std::uint64_t kConvertedBudget = std::uint64_t{120} << 20;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

bool is_half(core::DType type) { return type != core::DType::kFp32; }

std::int64_t power_of_two_below(std::int64_t x) {
  std::int64_t power = 1;
  while (power * 2 <= x) power *= 2;
  return power;
}

Status choose_body(const core::Attention& a, std::int32_t variant, CudaPlan* plan) {
  if (variant < 0 || variant >= kCudaVariants) {
    return core::invalid_argument("variant", static_cast<long long>(variant),
                                  "0 or a number that tw_attention_explain names (2 to 6)");
  }
  plan->variant = static_cast<CudaVariant>(variant);
  if (plan->variant == CudaVariant::kReference)
    return core::unsupported("variant", variant, "the float64 reference on the CPU only");
  plan->dim = core::instance_dim(a.head_dim, a.v_head_dim);
  const bool fits = plan->dim != 0 && is_half(a.q_dtype) && a.q_dtype == a.kv_dtype;
  const bool simt =
      plan->variant == CudaVariant::kSimtSelf || plan->variant == CudaVariant::kSimtSplit;
  plan->mma = plan->variant == CudaVariant::kAuto ? fits : !simt;
  if (plan->mma && !fits) {
    return core::unsupported(
        "variant", variant, "tensor cores for q and kv of one 16-bit type and head dims up to 256");
  }
  return {};
}

std::uint64_t partials_bytes(const core::Attention& a, const CudaPlan& plan) {
  const std::int64_t rows = product(product(plan.request_rows, a.batch), a.q_heads);
  const std::int64_t floats = product(product(rows, plan.max_chunks), cuda_partial_floats(a));
  return aligned(static_cast<std::uint64_t>(floats) * sizeof(float));
}

// Workspace: the same for every device and variant of one call's bounds, but where a forced variant
// needs more.
void lay_out_workspace(const core::Attention& a, bool split, CudaPlan* plan) {
  plan->converts = a.append.k != nullptr && a.append.dtype != a.kv_dtype;
  if (plan->converts) {
    const std::int64_t row = product(a.kv_heads, a.head_dim + a.v_head_dim);
    plan->partials_offset = aligned(static_cast<std::uint64_t>(product(a.total_q, row)) *
                                    static_cast<std::uint64_t>(core::size_of(a.kv_dtype)));
  }
  plan->counts_offset = plan->partials_offset + (split ? partials_bytes(a, *plan) : 0);
  plan->workspace_bytes = plan->counts_offset;
  if (split) plan->workspace_bytes += aligned(static_cast<std::uint64_t>(a.batch) * 4);
}

// Floats that blocks of a cluster push to each of its blocks.
std::int64_t received_floats(const CudaPlan& plan) {
  const std::int64_t slice = core::divide_up(plan.tile_rows * plan.dim, plan.parts);
  return plan.max_chunks * (slice + 4 * plan.used_rows);
}

std::int32_t shared_bytes(const CudaPlan& plan, std::int32_t stages) {
  const bool cluster = plan.sharing == CudaSharing::kCluster;
  const std::int64_t received =
      cluster ? std::min<std::int64_t>(received_floats(plan), 1 << 20) : 0;
  return core::decode_shared(plan.dim, plan.tile_rows, stages, static_cast<std::int32_t>(received))
      .bytes;
}

// The deepest ring that fits in `limit` bytes, of `most` stages at most; 0 if none of `fewest`
// does.
std::int32_t deepest_ring(const CudaPlan& plan, std::int32_t fewest, std::int32_t most,
                          std::int32_t limit) {
  for (std::int32_t stages = most; stages >= fewest; --stages) {
    if (shared_bytes(plan, stages) <= limit) return stages;
  }
  return 0;
}

std::int32_t half_of_sm(const CudaFacts& facts) {
  return std::min(facts.smem_per_sm / kBlocksOfSm - kReservedSharedBytes, facts.smem_per_block);
}

// Bytes on their way that keep the memory of an SM busy (H200: 64 KB; more gained nothing).
constexpr std::int32_t kBytesAhead = 64 << 10;

// Of a block that runs beside a second one on its SM where that leaves room for two stages, else
// alone. As few stages as keep the memory busy (128 x 8K keys, head dim 128: 927 us with two, 946
// with three); page tables want one more, and so do grids of one block an SM.
std::int32_t ring_of_grid(const core::Attention& a, const CudaPlan& plan, const CudaFacts& facts) {
  const std::int64_t blocks = product(product(a.batch, a.kv_heads), plan.row_blocks);
  const bool paged = a.kv.layout == core::KvLayout::kPaged;
  const std::int32_t tile_bytes = static_cast<std::int32_t>(core::kKeyTile) * plan.dim * 4;
  std::int32_t most = 1 + std::max(kBytesAhead / kBlocksOfSm / tile_bytes, 1);
  if (paged || blocks < std::int64_t{kBlocksOfSm} * facts.sm_count) ++most;
  most = std::min(most, core::kMostStages);
  const std::int32_t beside = deepest_ring(plan, 2, most, half_of_sm(facts));
  return beside != 0 ? beside
                     : deepest_ring(plan, 1, core::kMostStages, facts.smem_per_block - 128);
}

// Blocks of one row that fill the device once; two for up to as many rows as it has SMs, where two
// blocks fit on one (16 x 2K keys, page 16: 41 us against 49 of one; head dim 256: 83 against 72).
std::int64_t wanted_parts(const core::Attention& a, const CudaFacts& facts, const CudaPlan& plan) {
  const std::int64_t rows =
      std::max<std::int64_t>(product(product(a.batch, a.kv_heads), plan.row_blocks), 1);
  std::int64_t fill = rows <= facts.sm_count ? facts.sm_count / rows : 1;
  if (fill == 1 && rows <= facts.sm_count &&
      (!plan.mma || deepest_ring(plan, 2, core::kMostStages, half_of_sm(facts)) != 0)) {
    fill = 2;
  }
  return std::min(power_of_two_below(fill),
                  power_of_two_below(std::max<std::int64_t>(plan.max_chunks, 1)));
}

// Where every block of the call has an SM to itself its ring is as deep as it gets (8 x 32K keys:
// 242 us with three stages, 285 with two); else two of them must fit (4 x 8K keys in clusters of
// four: 44 us with two stages, 64 with three and one block an SM).
bool try_cluster(const core::Attention& a, const CudaFacts& facts, std::int64_t parts,
                 CudaPlan* plan) {
  if (facts.compute < 90) return false;
  const std::int64_t rows = product(product(a.batch, a.kv_heads), plan->row_blocks);
  const std::int32_t whole = facts.smem_per_block - 128;
  plan->sharing = CudaSharing::kCluster;
  const std::int64_t chunks = power_of_two_below(std::max<std::int64_t>(plan->max_chunks, 1));
  const std::int64_t most = std::min(chunks, kMostCluster);
  // More blocks have smaller shares of the rows to fold. Clusters of 16 find no room with one block
  // an SM.
  for (std::int64_t tried = std::min(parts, most); tried <= most; tried *= 2) {
    plan->parts = static_cast<std::int32_t>(tried);
    const bool alone = tried <= 2 && rows * tried <= facts.sm_count;
    plan->stages = deepest_ring(*plan, 2, core::kMostStages, alone ? whole : half_of_sm(facts));
    if (plan->stages == 0 && tried <= 8)
      plan->stages = deepest_ring(*plan, 2, core::kMostStages, whole);
    if (plan->stages != 0) return true;
  }
  plan->parts = static_cast<std::int32_t>(std::min<std::int64_t>(most, 8));
  plan->stages = deepest_ring(*plan, 2, core::kMostStages, whole);
  return plan->stages != 0;
}

void share_by_workspace(const core::Attention& a, std::int64_t parts, CudaPlan* plan) {
  const std::int64_t rows =
      std::max<std::int64_t>(product(product(a.batch, a.kv_heads), plan->row_blocks), 1);
  const std::int64_t room = power_of_two_below(std::max<std::int64_t>(kMostBlocks / rows, 1));
  const std::int64_t chunks = power_of_two_below(std::max<std::int64_t>(plan->max_chunks, 1));
  plan->sharing = CudaSharing::kSplit;
  plan->parts = static_cast<std::int32_t>(std::max(parts, std::min(room, chunks)));
}

// Self, cluster or split for a call that forces none. Requests of very different lengths are served
// by blocks that share by length, which only the workspace allows (one of 64K keys among 15 of 512:
// 90 us against 288 of clusters); what such a call may hold is known by its bounds only. Batches
// with more rows than blocks at once gain nothing (64 x up to 8K: 314 us against 299).
void choose_sharing(const core::Attention& a, const CudaFacts& facts, bool may_split,
                    CudaPlan* plan) {
  const std::int64_t parts = wanted_parts(a, facts, *plan);
  plan->sharing = CudaSharing::kSelf;
  plan->parts = 1;
  if (plan->max_chunks <= 1) return;
  const std::int64_t rows = product(product(a.batch, a.kv_heads), plan->row_blocks);
  const bool uneven = a.batch > 1 && a.kv.max_kv_len > kUnevenKeys && may_split &&
                      rows <= std::int64_t{kBlocksOfSm} * facts.sm_count;
  const bool by_cluster = parts > 1 && plan->mma && !uneven && try_cluster(a, facts, parts, plan);
  if (by_cluster) return;
  plan->sharing = CudaSharing::kSelf;
  plan->parts = 1;
  if ((parts > 1 || uneven) && may_split) share_by_workspace(a, parts, plan);
  if (plan->parts == 1) plan->sharing = CudaSharing::kSelf;
}

Status force_sharing(const core::Attention& a, const CudaFacts& facts, bool may_split,
                     CudaPlan* plan) {
  const std::int64_t parts = std::max<std::int64_t>(wanted_parts(a, facts, *plan), 2);
  plan->sharing = CudaSharing::kSelf;
  plan->parts = 1;
  if (plan->variant == CudaVariant::kMmaCluster) {
    if (plan->decode && !try_cluster(a, facts, parts, plan)) {
      return core::unsupported("variant", static_cast<int>(plan->variant),
                               "clusters on sm_90 and where a block's share of the rows fits");
    }
  } else if (plan->variant == CudaVariant::kMmaSplit || plan->variant == CudaVariant::kSimtSplit) {
    if (!may_split) {
      return core::unsupported("variant", static_cast<int>(plan->variant),
                               "partial results of up to 128 MiB");
    }
    if (plan->decode) share_by_workspace(a, parts, plan);
  }
  return {};
}

void shape_decode(const core::Attention& a, const Shape& shape, CudaPlan* plan) {
  const std::int64_t packed = product(std::max<std::int64_t>(shape.decode_rows, 1), a.group());
  if (plan->mma) {
    const std::int32_t most = core::most_decode_rows(plan->dim);
    plan->tile_rows = 8;
    while (plan->tile_rows < most && plan->tile_rows < packed) plan->tile_rows *= 2;
  } else {
    plan->tile_rows = core::kSimtRows;
  }
  plan->used_rows = static_cast<std::int32_t>(std::min<std::int64_t>(packed, plan->tile_rows));
  plan->request_rows = shape.decode_rows;
  plan->row_blocks = core::divide_up(packed, plan->tile_rows);
  plan->max_chunks = shape.decode ? core::bound_chunks(a.kv.max_kv_len, a.kv_heads) : 0;
}

void shape_prefill(const core::Attention& a, const Shape& shape, CudaPlan* plan) {
  plan->prefill_rows = plan->mma ? core::prefill_shape(plan->dim).rows : core::kSimtRows;
  if (!shape.prefill) return;
  const std::int64_t rows = plan->prefill_rows;
  plan->prefill_blocks = a.q_indptr == nullptr
                             ? product(a.batch, core::divide_up(product(a.q_len, a.group()), rows))
                             : product(a.total_q, a.group()) / rows + a.batch;
}

CudaVariant variant_number(const CudaPlan& plan) {
  const bool split = plan.sharing == CudaSharing::kSplit;
  if (!plan.mma) return split ? CudaVariant::kSimtSplit : CudaVariant::kSimtSelf;
  if (plan.sharing == CudaSharing::kCluster) return CudaVariant::kMmaCluster;
  return split ? CudaVariant::kMmaSplit : CudaVariant::kMmaSelf;
}

const char* variant_name(CudaVariant variant) {
  switch (variant) {
    case CudaVariant::kAuto:
    case CudaVariant::kReference:
      break;
    case CudaVariant::kSimtSelf:
      return "SIMT, each block folds its own chunks";
    case CudaVariant::kSimtSplit:
      return "SIMT, a second kernel folds chunks";
    case CudaVariant::kMmaSelf:
      return "tensor cores, each block folds its own chunks";
    case CudaVariant::kMmaCluster:
      return "tensor cores, the blocks of a cluster fold chunks";
    case CudaVariant::kMmaSplit:
      return "tensor cores, a second kernel folds chunks";
  }
  return "auto";
}

}  // namespace

Status plan_cuda_attention(const core::Attention& a, const CudaFacts& facts, std::int32_t variant,
                           CudaPlan* plan) {
  *plan = CudaPlan{};
  TW_TRY(choose_body(a, variant, plan));
  const Shape shape = shape_of(a);
  if (product(a.max_q_len, a.group()) > INT32_MAX) {
    return Status::error(core::Code::kUnsupported,
                         "max_q_len x heads of a group is %lld, this build does less than 2^31",
                         static_cast<long long>(product(a.max_q_len, a.group())));
  }
  plan->prefill = shape.prefill;
  plan->decode = shape.decode;
  shape_decode(a, shape, plan);
  shape_prefill(a, shape, plan);
  const bool may_split = plan->max_chunks > 1 && partials_bytes(a, *plan) <= kPartialsBudget;
  lay_out_workspace(a, may_split, plan);
  if (plan->partials_offset > kConvertedBudget) {
    return Status::error(core::Code::kUnsupported,
                         "append.dtype differs from kv_dtype for %lld rows, whose converted copies "
                         "would take %llu bytes, this build does up to %llu",
                         static_cast<long long>(a.total_q),
                         static_cast<unsigned long long>(plan->partials_offset),
                         static_cast<unsigned long long>(kConvertedBudget));
  }
  if (plan->variant == CudaVariant::kAuto) {
    if (shape.decode) choose_sharing(a, facts, may_split, plan);
    if (!shape.decode) plan->parts = 1;
  } else {
    TW_TRY(force_sharing(a, facts, may_split || !plan->decode || plan->max_chunks <= 1, plan));
  }
  if (plan->max_chunks <= 1 && plan->sharing == CudaSharing::kSplit) {
    plan->sharing = CudaSharing::kSelf;
    plan->parts = 1;
  }
  plan->keys_of_part = core::kKeyTile * 16;
  // Twice as many shares as blocks run at once leave short ones for the end.
  plan->fair_shares = std::int64_t{2 * kBlocksOfSm} * std::max(facts.sm_count, 1);
  if (plan->mma && plan->decode && plan->sharing != CudaSharing::kCluster) {
    plan->stages = ring_of_grid(a, *plan, facts);
    if (plan->stages == 0) {
      return core::unsupported("head_dim", a.head_dim,
                               "less on a device of so little shared memory");
    }
  }
  if (plan->mma && plan->decode) plan->shared_bytes = shared_bytes(*plan, plan->stages);
  plan->variant = variant_number(*plan);
  return {};
}

std::size_t explain_cuda_attention(const core::Attention& a, const CudaFacts& facts,
                                   const CudaPlan& plan, char* text, std::size_t capacity) {
  Text out(text, capacity);
  out.line("variant: %d (%s)\n", static_cast<int>(plan.variant), variant_name(plan.variant));
  out.line("device: %s, compute %d.%d, %d SMs\n", facts.name, facts.compute / 10,
           facts.compute % 10, facts.sm_count);
  if (plan.mma) {
    out.line("instance: head dims up to %d\n", plan.dim);
  } else {
    out.line("instance: any types and head dims\n");
  }
  if (plan.prefill) {
    out.line("prefill: tiles of %d rows (q rows x %d heads of a group), up to %lld of a KV head\n",
             plan.prefill_rows, a.group(), static_cast<long long>(plan.prefill_blocks));
  }
  if (plan.decode) {
    out.line(
        "decode: up to %lld q rows a request, blocks of %d rows (q rows x %d heads), %lld a "
        "KV head, ring of %d stages\n",
        static_cast<long long>(plan.request_rows), plan.tile_rows, a.group(),
        static_cast<long long>(plan.row_blocks), plan.stages);
    out.line(
        "decode chunks: up to %lld a request, whole tiles of %lld keys, cut from its own "
        "visible range\n",
        static_cast<long long>(plan.max_chunks), static_cast<long long>(core::kKeyTile));
    out.line("sharing: %d blocks a row at most\n", plan.parts);
  }
  out.line("workspace: %llu bytes\n", static_cast<unsigned long long>(plan.workspace_bytes));
  return out.length();
}

}  // namespace tilewise::plan
