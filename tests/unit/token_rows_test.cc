// find_row: which request a row of a call belongs to, also where row pointers are hostile.
#include "core/token_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewise::core {
namespace {

TokenRows ragged(const std::vector<std::int32_t>& indptr, std::int64_t total) {
  return {static_cast<std::int32_t>(indptr.size()) - 1, 0, total, total, indptr.data()};
}

TEST(FindRow, DividesDenseRows) {
  const TokenRows tokens{3, 4, 12, 4, nullptr};
  for (std::int64_t flat = 0; flat < 12; ++flat) {
    const RowSpan span = find_row(tokens, flat);
    EXPECT_EQ(span.request, flat / 4);
    EXPECT_EQ(span.begin, flat % 4);
    EXPECT_EQ(span.end, span.begin + 1);
    EXPECT_EQ(span.flat(span.begin), flat);
  }
}

TEST(FindRow, PassesOverEmptyRequestsAndRowsOfNone) {
  const std::vector<std::int32_t> indptr{1, 1, 3, 3, 3, 7};
  const std::int32_t requests[] = {-1, 1, 1, 4, 4, 4, 4, -1, -1};
  for (std::int64_t flat = 0; flat < 9; ++flat) {
    const RowSpan span = find_row(ragged(indptr, 9), flat);
    EXPECT_EQ(span.flat(span.begin), flat);
    EXPECT_EQ(span.begin != span.end, requests[flat] >= 0) << flat;
    if (span.begin == span.end) continue;
    EXPECT_EQ(span.request, requests[flat]) << flat;
  }
}

TEST(FindRow, LeavesOutRowsPastTheBoundOfARequest) {
  const std::vector<std::int32_t> indptr{0, 5, 6};
  TokenRows tokens = ragged(indptr, 6);
  tokens.max_q_len = 3;
  EXPECT_EQ(find_row(tokens, 2).end, 3);
  EXPECT_EQ(find_row(tokens, 3).begin, find_row(tokens, 3).end);
  EXPECT_EQ(find_row(tokens, 5).request, 1);
}

TEST(FindRow, NamesARequestThatHasTheRowWhateverThePointersHold) {
  const std::vector<std::int32_t> values{INT32_MIN, -1, 0, 2, 5, 6, INT32_MAX};
  const std::int64_t n = static_cast<std::int64_t>(values.size());
  for (std::int64_t i = 0; i < n * n * n * n; ++i) {
    const auto value = [&](std::int64_t rest) {
      return values[static_cast<std::size_t>(rest % n)];
    };
    const std::vector<std::int32_t> indptr{value(i), value(i / n), value(i / n / n),
                                           value(i / n / n / n)};
    const TokenRows tokens = ragged(indptr, 6);
    for (std::int64_t flat = 0; flat < 6; ++flat) {
      const RowSpan span = find_row(tokens, flat);
      ASSERT_TRUE(span.request >= 0 && span.request < 3);
      ASSERT_EQ(span.flat(span.begin), flat);
      if (span.begin == span.end) continue;
      ASSERT_TRUE(span.begin >= 0 && span.begin < span.rows.count);
    }
  }
}

}  // namespace
}  // namespace tilewise::core
