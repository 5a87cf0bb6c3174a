// The visibility rule, exhaustively over small numbers, against the formula of the C header.
#include "core/visibility.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewise::core {
namespace {

bool formula(const Visibility& rule, std::int64_t pos, std::int64_t kv_len, std::int64_t j) {
  return j >= 0 && j < kv_len && !(rule.causal && j > pos) &&
         !(rule.has_left && j < pos - rule.window_left) &&
         !(rule.has_right && j > pos + rule.window_right);
}

void expect_formula(const Visibility& rule, std::int64_t pos, std::int64_t kv_len) {
  const KeyRange range = visible_keys(rule, pos, kv_len);
  bool any = false;
  for (std::int64_t j = -2; j < kv_len + 2; ++j) {
    const bool sees = j >= range.begin && j < range.end;
    ASSERT_EQ(sees, formula(rule, pos, kv_len, j))
        << "pos " << pos << " kv_len " << kv_len << " key " << j;
    any = any || sees;
  }
  if (!any) {
    ASSERT_EQ(range.begin, range.end) << "an empty range is {0, 0}";
  }
}

TEST(Visibility, AgreesWithTheFormulaForEverySmallCase) {
  for (int flags = 0; flags < 8; ++flags) {
    for (std::int64_t left = 0; left < 5; ++left) {
      for (std::int64_t right = 0; right < 4; ++right) {
        const Visibility rule{(flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, left, right};
        for (std::int64_t kv_len = 0; kv_len < 9; ++kv_len) {
          for (std::int64_t pos = -6; pos < 15; ++pos) expect_formula(rule, pos, kv_len);
        }
      }
    }
  }
}

TEST(Visibility, HoldsAtTheEndsOfTheTypes) {
  const std::int64_t most = INT32_MAX;
  const Visibility rule{true, true, true, most, most};
  const KeyRange all = visible_keys(rule, most, most);
  EXPECT_EQ(all.begin, 0);
  EXPECT_EQ(all.end, most);
  const KeyRange none = visible_keys(rule, INT32_MIN, most);
  EXPECT_EQ(none.begin, none.end);
}

// 2 requests, 3 heads, 2 rows, 4 keys: byte (r, h, i, j) holds its own index, one in five is 0.
struct MaskFixture {
  MaskFixture() {
    for (int n = 0; n < 48; ++n) bytes.push_back(static_cast<std::uint8_t>(n % 5));
  }
  std::vector<std::uint8_t> bytes;
  Mask mask() const { return {bytes.data(), 24, 8, 4, nullptr, nullptr, 4, 48}; }
};

TEST(MaskRow, FindsTheByteOfEveryKey) {
  const MaskFixture f;
  for (std::int32_t r = 0; r < 2; ++r) {
    for (std::int32_t h = 0; h < 3; ++h) {
      for (std::int64_t i = 0; i < 2; ++i) {
        bool inside = false;
        const MaskRow row = mask_row(f.mask(), r, h, i, &inside);
        ASSERT_TRUE(inside);
        for (std::int64_t j = 0; j < 4; ++j)
          EXPECT_EQ(keeps(row, j), (r * 24 + h * 8 + i * 4 + j) % 5 != 0);
        EXPECT_FALSE(keeps(row, 4)) << "past the width nothing is kept";
      }
    }
  }
}

TEST(MaskRow, StrideZeroBroadcastsAndOffsetsReplaceTheBatchStride) {
  const MaskFixture f;
  Mask mask = f.mask();
  mask.batch_stride = mask.head_stride = 0;
  bool inside = false;
  EXPECT_EQ(mask_row(mask, 1, 2, 1, &inside).data, f.bytes.data() + 4);
  const std::int64_t offset[] = {7, 40};
  mask.offset = offset;
  EXPECT_EQ(mask_row(mask, 1, 2, 1, &inside).data, f.bytes.data() + 44);
  EXPECT_TRUE(inside);
}

TEST(MaskRow, KeysBeforeTheFirstAreKept) {
  const MaskFixture f;
  Mask mask = f.mask();
  const std::int32_t first[] = {0, 10};
  mask.first_key = first;
  bool inside = false;
  const MaskRow row = mask_row(mask, 1, 0, 0, &inside);
  for (std::int64_t j = 0; j < 10; ++j) EXPECT_TRUE(keeps(row, j));
  for (std::int64_t j = 10; j < 14; ++j) EXPECT_EQ(keeps(row, j), (24 + j - 10) % 5 != 0);
  EXPECT_FALSE(keeps(row, 14));
}

// The extent is a promise about memory: a row that would leave it is not read at all.
TEST(MaskRow, OutsideTheExtentKeepsNothingPastItsFirstKey) {
  const MaskFixture f;
  Mask mask = f.mask();
  const std::int64_t offsets[] = {-1, 41, INT64_MIN, INT64_MAX};
  mask.offset = offsets;
  for (std::int32_t r = 0; r < 4; ++r) {
    bool inside = true;
    const MaskRow row = mask_row(mask, r, 0, 1, &inside);
    EXPECT_FALSE(inside) << r;
    EXPECT_FALSE(keeps(row, 0)) << r;
  }
  mask.offset = nullptr;
  mask.bytes = 0;  // not stated: not checked
  bool inside = false;
  mask_row(mask, 1, 0, 0, &inside);
  EXPECT_TRUE(inside);
}

}  // namespace
}  // namespace tilewise::core
