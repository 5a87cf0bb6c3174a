// Work items of a call: every row, KV head and chunk of every request exactly once, whoever draws
// them, and heads together only where a few rows walk the keys.
#include "cpu/work_items.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "core/rows.h"
#include "plan/cpu_scratch.h"

namespace tilewise::testing {
namespace {

using cpu::WorkCursor;
using cpu::WorkItem;
using cpu::WorkItems;
using plan::Sharing;

// Requests of the given q lengths, ragged, with `kv_heads` of `group` query heads.
struct Call {
  std::vector<std::int32_t> indptr{0};
  core::Attention a{};
  plan::CpuPlan plan{};

  Call(const std::vector<std::int32_t>& lengths, std::int32_t kv_heads, std::int32_t group) {
    for (const std::int32_t length : lengths) indptr.push_back(indptr.back() + length);
    a.batch = static_cast<std::int32_t>(lengths.size());
    a.kv_heads = kv_heads;
    a.q_heads = kv_heads * group;
    a.head_dim = a.v_head_dim = 64;
    a.q_indptr = indptr.data();
    a.total_q = a.max_q_len = indptr.back();
    plan.q_tile = 24;
    plan.decode_rows = 36;
    plan.direct_heads = 8;
    plan.max_chunks = 3;
    plan.sharing = Sharing::kSelf;
  }
};

// How often each (request, KV head, packed row, chunk) stands in the list, drawn in steps as two
// workers would.
std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>, int> drawn(
    const WorkItems& items) {
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t, std::int64_t>, int> seen;
  WorkCursor cursors[2] = {};
  for (std::int64_t i = 0; i < items.count(); ++i) {
    const WorkItem item = items.at(i, &cursors[i % 3 == 0]);
    EXPECT_GE(item.heads, 1);
    EXPECT_GE(item.count, 1);
    for (std::int32_t head = item.kv_head; head < item.kv_head + item.heads; ++head) {
      for (std::int64_t row = item.first; row < item.first + item.count; ++row) {
        ++seen[{item.request, head, row, item.chunk}];
      }
    }
  }
  return seen;
}

TEST(WorkItemsOfACall, CoverEveryRowHeadAndChunkOnce) {
  for (const Sharing sharing : {Sharing::kSelf, Sharing::kSplit}) {
    for (const std::int32_t kv_heads : {1, 3, 8, 11}) {
      Call call({1, 0, 5, 16, 17, 0, 40, 1}, kv_heads, 3);
      call.plan.sharing = sharing;
      std::size_t want = 0;
      for (std::size_t r = 0; r + 1 < call.indptr.size(); ++r) {
        const std::int64_t rows = call.indptr[r + 1] - call.indptr[r];
        const bool shared = sharing == Sharing::kSplit && rows <= core::kDecodeRows;
        want += static_cast<std::size_t>(rows * 3 * kv_heads * (shared ? call.plan.max_chunks : 1));
      }
      const auto seen = drawn(WorkItems(call.a, call.plan, WorkItems::Kind::kParts));
      EXPECT_EQ(seen.size(), want);
      for (const auto& [place, times] : seen) EXPECT_EQ(times, 1) << std::get<0>(place);
    }
  }
}

TEST(WorkItemsOfACall, WholesAreTheDecodeRowsWithoutChunks) {
  Call call({1, 5, 17}, 3, 2);
  call.plan.sharing = Sharing::kSplit;
  const auto seen = drawn(WorkItems(call.a, call.plan, WorkItems::Kind::kWholes));
  EXPECT_EQ(seen.size(), static_cast<std::size_t>((1 + 5) * 2 * 3));
}

TEST(WorkItemsOfACall, HeadsGoTogetherWhileTheirRowsFit) {
  Call call({1, 16, 17}, 11, 4);  // 4 packed rows, 64, and class P
  const WorkItems items(call.a, call.plan, WorkItems::Kind::kParts);
  WorkCursor cursor{};
  for (std::int64_t i = 0; i < items.count(); ++i) {
    const WorkItem item = items.at(i, &cursor);
    EXPECT_EQ(item.direct, item.request == 0);
    EXPECT_LE(item.heads * item.count, item.direct ? plan::kDirectItemRows : 36);
    EXPECT_EQ(item.heads, item.request != 0 ? 1 : item.kv_head == 0 ? 8 : 3);
  }
}

TEST(WorkItemsOfACall, DenseCallsNeedNoWalk) {
  Call call({2, 2, 2, 2}, 2, 1);
  const auto ragged = drawn(WorkItems(call.a, call.plan, WorkItems::Kind::kParts));
  call.a.q_indptr = nullptr;
  call.a.q_len = call.a.max_q_len = 2;
  EXPECT_EQ(drawn(WorkItems(call.a, call.plan, WorkItems::Kind::kParts)), ragged);
}

}  // namespace
}  // namespace tilewise::testing
