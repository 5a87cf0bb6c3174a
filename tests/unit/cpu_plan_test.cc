// The CPU planner on pretended machines: choices, refusals, workspace bounds, the scratch layout
// and the explanation.
#include "plan/cpu_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/rows.h"
#include "plan/cpu_scratch.h"

namespace tilewise::testing {
namespace {

using core::DType;
using plan::CpuFacts;
using plan::CpuPlan;
using plan::CpuVariant;
using plan::Sharing;
using ::testing::HasSubstr;

constexpr CpuFacts kTwoCores{2, false, "avx3"};
constexpr CpuFacts kXeon{16, true, "avx3"};

core::Attention dense(std::int32_t batch, std::int64_t q_len, std::int64_t kv_len,
                      std::int32_t q_heads = 32, std::int32_t kv_heads = 8) {
  core::Attention a{};
  a.q_dtype = a.kv_dtype = a.o_dtype = DType::kBf16;
  a.batch = batch;
  a.q_heads = q_heads;
  a.kv_heads = kv_heads;
  a.head_dim = a.v_head_dim = 128;
  a.q_len = a.max_q_len = q_len;
  a.total_q = batch * q_len;
  a.kv.max_kv_len = kv_len;
  a.forced_class = core::RowClass::kAuto;
  return a;
}

core::Attention ragged(std::int32_t batch, std::int64_t max_q_len, std::int64_t total_q,
                       std::int64_t kv_len) {
  static constexpr std::int32_t kIndptr[1] = {};  // only whether it is given matters to a plan
  core::Attention a = dense(batch, max_q_len, kv_len);
  a.q_indptr = kIndptr;
  a.total_q = total_q;
  return a;
}

CpuPlan plan_of(const core::Attention& a, const CpuFacts& facts, std::int32_t variant = 0) {
  CpuPlan p;
  const core::Status status = plan::plan_cpu_attention(a, facts, variant, &p);
  EXPECT_TRUE(status.ok()) << status.text();
  return p;
}

std::string refusal(const core::Attention& a, const CpuFacts& facts, std::int32_t variant,
                    core::Code code) {
  CpuPlan p;
  const core::Status status = plan::plan_cpu_attention(a, facts, variant, &p);
  EXPECT_EQ(status.code(), code);
  return status.text();
}

std::string explanation(const core::Attention& a, const CpuFacts& facts, const CpuPlan& p) {
  std::string text(plan::explain_cpu_attention(a, facts, p, nullptr, 0) + 1, 'x');
  plan::explain_cpu_attention(a, facts, p, text.data(), text.size());
  text.pop_back();
  return text;
}

TEST(CpuPlanVariant, UsesTilesForBf16PrefillWhereTheMachineHasThem) {
  const core::Attention a = dense(1, 2048, 2048);
  EXPECT_TRUE(plan_of(a, kXeon).prefill_on_amx);
  EXPECT_EQ(plan_of(a, kXeon).variant, CpuVariant::kAmxSelf);
  EXPECT_EQ(plan_of(a, kTwoCores).variant, CpuVariant::kSimdSelf);
  EXPECT_FALSE(plan_of(a, kXeon, 2).prefill_on_amx);
  core::Attention fp16 = a;
  fp16.kv_dtype = DType::kFp16;
  EXPECT_FALSE(plan_of(fp16, kXeon).prefill_on_amx);
  EXPECT_FALSE(plan_of(dense(1, 1, 2048), kXeon).prefill_on_amx);  // nothing of class P in it
}

TEST(CpuPlanVariant, RefusesWhatTheMachineOrTheCallCannotRun) {
  const core::Attention a = dense(1, 2048, 2048);
  EXPECT_THAT(refusal(a, kTwoCores, 4, core::Code::kUnsupported), HasSubstr("variant is 4"));
  core::Attention fp32 = a;
  fp32.q_dtype = DType::kFp32;
  EXPECT_THAT(refusal(fp32, kXeon, 5, core::Code::kUnsupported), HasSubstr("variant is 5"));
  EXPECT_THAT(refusal(a, kXeon, 6, core::Code::kInvalidArgument), HasSubstr("variant is 6"));
  EXPECT_THAT(refusal(a, kXeon, -1, core::Code::kInvalidArgument), HasSubstr("variant is -1"));
  // Split needs a place for every partial result.
  EXPECT_THAT(refusal(dense(4096, 16, 1 << 20), kTwoCores, 3, core::Code::kUnsupported),
              HasSubstr("variant is 3"));
}

TEST(CpuPlanVariant, IsWhatWasForced) {
  for (const std::int32_t variant : {1, 2, 3, 4, 5}) {
    const CpuPlan p = plan_of(dense(2, 5, 4096), kXeon, variant);
    EXPECT_EQ(p.variant, static_cast<CpuVariant>(variant));
    EXPECT_EQ(p.sharing == Sharing::kSplit, variant == 3 || variant == 5) << variant;
  }
  EXPECT_EQ(plan_of(dense(2, 5, 4096), kXeon, 1).workspace_bytes, 0u);
}

TEST(CpuPlanSharing, SplitsFewLongRowsAndNothingElse) {
  EXPECT_EQ(plan_of(dense(1, 1, 16384), kXeon).sharing, Sharing::kSplit);
  EXPECT_EQ(plan_of(dense(1, 1, 16384, 9, 3), kTwoCores).sharing, Sharing::kSplit);
  EXPECT_EQ(plan_of(dense(64, 1, 16384), kXeon).sharing, Sharing::kSelf);  // enough blocks
  EXPECT_EQ(plan_of(dense(1, 1, 64), kXeon).sharing, Sharing::kSelf);      // one chunk
  EXPECT_EQ(plan_of(dense(1, 1, 16384), {1, false, "avx3"}).sharing, Sharing::kSelf);
  EXPECT_EQ(plan_of(dense(1, 2048, 2048), kXeon).sharing, Sharing::kSelf);  // class P only
  EXPECT_EQ(plan_of(ragged(3, 2048, 2050, 4096), kXeon).sharing, Sharing::kSplit);
}

TEST(CpuPlanSharing, HasASlotForEveryPartialOfEveryRowAndHead) {
  const core::Attention a = dense(2, 3, 16384);
  const CpuPlan p = plan_of(a, kXeon, 3);
  EXPECT_EQ(p.max_chunks, core::bound_chunks(16384, 8));
  EXPECT_EQ(p.decode_request_rows, 3);
  EXPECT_EQ(p.decode_slots, 2 * 3 * 32);
  const auto bytes =
      static_cast<std::uint64_t>(p.decode_slots * p.max_chunks * plan::partial_floats(a)) *
      sizeof(float);
  EXPECT_GE(p.workspace_bytes, p.partials_offset + bytes);
  EXPECT_LT(p.workspace_bytes, p.partials_offset + bytes + 256);
  // Ragged: any of the requests may have up to the class's own bound of rows.
  const CpuPlan mixed = plan_of(ragged(3, 2048, 2050, 4096), kXeon, 3);
  EXPECT_EQ(mixed.decode_request_rows, core::kDecodeRows);
  EXPECT_EQ(mixed.decode_slots, 3 * core::kDecodeRows * 32);
}

TEST(CpuPlanSharing, WalksHeadsTogetherWhileEveryWorkerHasItems) {
  EXPECT_EQ(plan_of(dense(64, 1, 4096), kTwoCores).direct_heads, 8);
  EXPECT_EQ(plan_of(dense(64, 1, 4096, 12, 3), kTwoCores).direct_heads, 3);
  // One request: its chunks are the items, and the heads stay together.
  EXPECT_EQ(plan_of(dense(1, 1, 16384), kTwoCores).direct_heads, 8);
  EXPECT_EQ(plan_of(dense(1, 1, 16384), kTwoCores).sharing, Sharing::kSplit);
  // Not where that leaves workers idle, be it that chunks are few or must stay together.
  EXPECT_EQ(plan_of(dense(1, 1, 128), {16, false, "avx3"}).direct_heads, 1);
  EXPECT_EQ(plan_of(dense(1, 1, 16384), kTwoCores, 2).direct_heads, 1);
}

TEST(CpuPlanRows, BlocksShrinkUntilEveryWorkerHasSome) {
  EXPECT_EQ(plan_of(dense(1, 4096, 4096), kTwoCores).q_tile, 120);
  const core::Attention small = dense(1, 128, 128, 4, 4);
  const CpuPlan few = plan_of(small, {16, false, "avx3"});
  EXPECT_LT(few.q_tile, 120);
  EXPECT_EQ(few.q_tile % plan::kRowGroup, 0);
  EXPECT_GE(few.q_tile, plan::kRowGroup);
  EXPECT_EQ(plan_of(small, {1, false, "avx3"}).q_tile, 120);
  EXPECT_EQ(plan_of(dense(1, 4096, 4096), kXeon).q_tile, plan::kAmxBlockRows);
}

TEST(CpuPlanWorkspace, StaysWithin256MiBForAnyBounds) {
  const std::vector<std::int64_t> lengths{1, 16, 17, 4096, INT32_MAX};
  for (const std::int32_t batch : {1, 1000, INT32_MAX}) {
    for (const std::int64_t q_len : lengths) {
      for (const std::int32_t heads : {1, 8, 1 << 20}) {
        for (const std::int32_t threads : {1, 64, 4096, INT32_MAX}) {
          core::Attention a = ragged(batch, q_len, q_len * batch, INT32_MAX);
          a.q_heads = heads, a.kv_heads = heads > 4 ? heads / 4 : heads;
          a.head_dim = a.v_head_dim = 512;
          a.append.dtype = DType::kFp32;
          for (const bool amx : {false, true}) {
            const CpuPlan p = plan_of(a, {threads, amx, "avx3"});
            ASSERT_LE(p.workspace_bytes, plan::kMaxWorkspaceBytes);
            ASSERT_GE(p.workers, 1);
            ASSERT_LE(p.workers, threads);
          }
        }
      }
    }
  }
}

TEST(CpuPlanWorkspace, PartsFollowEachOther) {
  const CpuPlan p = plan_of(dense(1, 1, 16384), kXeon);
  const auto workers = static_cast<std::uint64_t>(p.workers);
  EXPECT_GE(p.scratch_offset, workers * plan::kCursorBytes);
  EXPECT_EQ(p.scratch_offset % 256, 0u);
  EXPECT_EQ(p.worker_bytes % 256, 0u);
  EXPECT_EQ(p.partials_offset, p.scratch_offset + workers * p.worker_bytes);
  EXPECT_GT(p.workspace_bytes, p.partials_offset);
}

TEST(CpuPlanWorkspace, KeepsNoScratchForWorkersWithoutWork) {
  EXPECT_EQ(plan_of(dense(1, 2048, 2048, 1, 1), {4096, false, "avx3"}).workers, 86);  // of 24 rows
  EXPECT_EQ(plan_of(dense(1, 1, 64, 2, 2), {4096, false, "avx3"}).workers, 2);
}

TEST(CpuScratchLayout, ArraysAreAlignedAndDoNotOverlap) {
  core::Attention a = dense(1, 4096, 4096);
  a.append.dtype = DType::kFp16;
  for (std::int32_t dim = 8; dim <= 512; dim += 8) {
    a.head_dim = dim;
    a.v_head_dim = 520 - dim;
    const CpuPlan p = plan_of(a, kTwoCores);
    const plan::CpuScratch s = plan::lay_out_scratch(a, p);
    const std::uint64_t rows =
        static_cast<std::uint64_t>(core::round_up(std::max(p.q_tile, p.decode_rows), 6));
    const std::uint64_t q_pad = static_cast<std::uint64_t>(s.dim_pad);
    const std::uint64_t v_pad = static_cast<std::uint64_t>(s.v_pad);
    const std::vector<std::pair<std::uint64_t, std::uint64_t>> arrays{
        {s.q, rows * q_pad},
        {s.scores, rows * 64},
        {s.output, rows * v_pad},
        {s.maximum, rows},
        {s.sum, rows},
        {s.decay, rows},
        {s.k, q_pad * 64},
        {s.v, v_pad * 64},
        {s.staging, q_pad * 16},
        {s.fold_output, rows * v_pad},
        {s.fold_maximum, rows},
        {s.fold_sum, rows},
        {s.converted, 64 * static_cast<std::uint64_t>(a.head_dim + a.v_head_dim) / 2},
        {s.bytes, 0}};
    EXPECT_GE(s.dim_pad, a.head_dim);
    EXPECT_GE(s.v_pad, a.v_head_dim);
    EXPECT_EQ(s.bytes % 256, 0u);
    for (std::size_t i = 0; i + 1 < arrays.size(); ++i) {
      EXPECT_EQ(arrays[i].first % 64, 0u) << i;
      EXPECT_LE(arrays[i].first + arrays[i].second * sizeof(float), arrays[i + 1].first) << i;
    }
  }
}

TEST(CpuExplain, SaysWhatRunsAndWhyOneFactALine) {
  const core::Attention a = ragged(3, 2048, 2050, 4096);
  const std::string text = explanation(a, kXeon, plan_of(a, kXeon));
  for (const char* fact : {"variant: 5 (", "isa: avx3, AMX tiles in use\n", "workers: 16 of 16",
                           "prefill: bf16 tiles, blocks of ", "decode: ", "decode chunks: up to ",
                           "sharing: split: ", "workspace: "}) {
    EXPECT_THAT(text, HasSubstr(fact));
  }
  EXPECT_EQ(text.back(), '\n');
}

TEST(CpuExplain, IsCutAtTheCapacityAndAlwaysTerminated) {
  const core::Attention a = dense(1, 1, 16384);
  const CpuPlan p = plan_of(a, kTwoCores);
  const std::string whole = explanation(a, kTwoCores, p);
  for (std::size_t capacity = 1; capacity <= whole.size() + 1; ++capacity) {
    std::vector<char> text(capacity + 1, '#');
    EXPECT_EQ(plan::explain_cpu_attention(a, kTwoCores, p, text.data(), capacity), whole.size());
    EXPECT_EQ(std::string(text.data()), whole.substr(0, capacity - 1));
    EXPECT_EQ(text[capacity], '#');
  }
}

}  // namespace
}  // namespace tilewise::testing
