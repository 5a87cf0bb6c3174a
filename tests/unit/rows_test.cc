// Row classes and the chunk rule: exhaustive over lengths, since they are part of the bits.
#include "core/rows.h"

#include <gtest/gtest.h>

namespace tilewise::core {
namespace {

TEST(RowClass, DependsOnTheRequestsOwnRowsOnly) {
  for (std::int64_t q_len = 0; q_len < 200; ++q_len) {
    EXPECT_EQ(row_class(q_len, RowClass::kAuto),
              q_len <= 16 ? RowClass::kDecode : RowClass::kPrefill)
        << q_len;
    EXPECT_EQ(row_class(q_len, RowClass::kDecode), RowClass::kDecode);
    EXPECT_EQ(row_class(q_len, RowClass::kPrefill), RowClass::kPrefill);
  }
}

void expect_partition(const Chunks& chunks, std::int64_t first, std::int64_t kv_len,
                      std::int32_t kv_heads) {
  ASSERT_EQ(chunks.begin % kKeyTile, 0);
  ASSERT_LE(chunks.begin, first);
  ASSERT_GT(chunks.begin + kKeyTile, first) << "no tile is read that no row sees";
  ASSERT_EQ(chunks.end, kv_len);
  ASSERT_EQ(chunks.keys % kKeyTile, 0);
  ASSERT_LE(chunks.count, most_chunks(kv_len - chunks.begin, kv_heads));
  std::int64_t at = chunks.begin;
  for (std::int64_t i = 0; i < chunks.count; ++i) {
    ASSERT_EQ(chunks.chunk_begin(i), at);
    ASSERT_GT(chunks.chunk_end(i), at) << "no chunk is empty";
    at = chunks.chunk_end(i);
  }
  ASSERT_EQ(at, kv_len) << "chunks cover the range without a gap";
}

TEST(Chunks, CoverEveryRangeInOrder) {
  for (const std::int32_t kv_heads : {1, 2, 3, 4, 7, 8, 32}) {
    for (std::int64_t kv_len = 1; kv_len < 1400; ++kv_len) {
      for (const std::int64_t first : {std::int64_t{0}, kv_len / 3, kv_len - 1})
        expect_partition(cut_chunks(first, kv_len, kv_heads), first, kv_len, kv_heads);
    }
    for (const std::int64_t kv_len : {4095, 4096, 4097, 65536, 1048577, INT32_MAX})
      expect_partition(cut_chunks(0, kv_len, kv_heads), 0, kv_len, kv_heads);
  }
}

TEST(Chunks, AnEmptyRangeHasNone) {
  EXPECT_EQ(cut_chunks(0, 0, 8).count, 0);
  EXPECT_EQ(cut_chunks(100, 100, 8).count, 0);
  EXPECT_EQ(cut_chunks(101, 100, 8).count, 0);
}

// A window far into a long context is cut like the same window in a short one: released pages
// change nothing.
TEST(Chunks, DependOnTheRangesOwnLength) {
  for (std::int64_t shift = kKeyTile; shift < 40 * kKeyTile; shift += kKeyTile) {
    for (std::int64_t kv_len = 6; kv_len < 900; kv_len += 7) {
      const Chunks near = cut_chunks(5, kv_len, 2), far = cut_chunks(5 + shift, kv_len + shift, 2);
      EXPECT_EQ(near.keys, far.keys);
      EXPECT_EQ(near.count, far.count);
      EXPECT_EQ(near.begin + shift, far.begin);
    }
  }
}

TEST(Chunks, AreMoreForFewerHeads) {
  EXPECT_EQ(cut_chunks(0, 4096, 8).count, 8);
  EXPECT_EQ(cut_chunks(0, 4096, 4).count, 16);
  EXPECT_EQ(cut_chunks(0, 4096, 2).count, 16);
  EXPECT_EQ(cut_chunks(0, 4096, 1).count, 16);
  EXPECT_EQ(cut_chunks(0, 16384, 8).count, 16);
}

// What workspaces are sized by holds for every length within the bound and every window.
TEST(Chunks, NeverExceedTheirBound) {
  for (const std::int32_t kv_heads : {1, 2, 4, 8}) {
    for (const std::int64_t bound : {1, 63, 64, 65, 500, 1000, 4096, 4097, 6000}) {
      for (std::int64_t kv_len = 0; kv_len <= bound; kv_len += 1 + bound / 300) {
        for (std::int64_t first = 0; first < kv_len; first += 1 + kv_len / 7)
          ASSERT_LE(cut_chunks(first, kv_len, kv_heads).count, bound_chunks(bound, kv_heads))
              << bound << " " << kv_len;
      }
    }
  }
  EXPECT_EQ(bound_chunks(0, 8), 0);
  EXPECT_EQ(bound_chunks(-5, 8), 0);
}

TEST(Rounding, DividesAndRoundsUp) {
  for (std::int64_t a = 0; a < 300; ++a) {
    for (std::int64_t b = 1; b < 20; ++b) {
      EXPECT_EQ(divide_up(a, b), a / b + (a % b != 0 ? 1 : 0));
      EXPECT_EQ(round_up(a, b) % b, 0);
      EXPECT_LT(round_up(a, b) - a, b);
    }
  }
}

}  // namespace
}  // namespace tilewise::core
