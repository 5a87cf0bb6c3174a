// The paged cache: pages are handed out, taken back and never shared.
#include "generate/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

#include "generate/error.h"

namespace tilewise::generate {
namespace {

constexpr CacheShape kShape{/*layers=*/2, /*kv_heads=*/3, /*head_dim=*/8, TW_DTYPE_FP32,
                            /*page_size=*/4};

std::set<std::int32_t> pages_of(const tw_kv_cache& kv) {
  std::set<std::int32_t> pages;
  for (std::int64_t i = 0; i < kv.page_table_rows * kv.page_table_width; ++i) {
    const std::int32_t page = kv.page_table[i];
    if (page >= 0 && !pages.insert(page).second) ADD_FAILURE() << "page " << page << " is shared";
  }
  return pages;
}

TEST(KvCache, GivesEveryRequestItsOwnPagesAsItGrows) {
  KvCache cache(kShape, {9, 4, 1});
  EXPECT_EQ(cache.free_pages(), 3 + 1 + 1);
  cache.reserve(0, 4);
  cache.reserve(1, 1);
  cache.reserve(0, 5);
  cache.reserve(2, 1);
  cache.reserve(0, 5);
  const tw_kv_cache kv = cache.view(0, nullptr, nullptr);
  EXPECT_EQ(pages_of(kv).size(), 4u);
  EXPECT_EQ(cache.free_pages(), 1);
  EXPECT_EQ(kv.page_table_width, 3);
  EXPECT_EQ(kv.num_pages, 5);
  EXPECT_EQ(kv.page_table[2], -1);
}

TEST(KvCache, HandsReleasedPagesOutAgain) {
  KvCache cache(kShape, {8, 8});
  cache.reserve(0, 8);
  cache.release(0);
  EXPECT_EQ(cache.free_pages(), 4);
  cache.reserve(1, 8);
  cache.reserve(0, 8);
  EXPECT_EQ(pages_of(cache.view(1, nullptr, nullptr)).size(), 4u);
  EXPECT_EQ(cache.free_pages(), 0);
}

TEST(KvCache, KeepsLayersKeysAndValuesApart) {
  KvCache cache(kShape, {9});
  const tw_kv_cache first = cache.view(0, nullptr, nullptr);
  const tw_kv_cache second = cache.view(1, nullptr, nullptr);
  const std::int64_t half = first.num_pages * first.k_batch_stride * 4;
  const auto at = [](const void* p) { return static_cast<const char*>(p); };
  EXPECT_EQ(at(first.v) - at(first.k), half);
  EXPECT_EQ(at(second.k) - at(first.v), half);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.k) % 64, 0u);
}

TEST(KvCache, RefusesATerabyte) {
  EXPECT_THROW(
      KvCache({1024, 4096, 512, TW_DTYPE_FP32, 1 << 16}, std::vector<std::int32_t>(1000, 1 << 30)),
      InputError);
}

}  // namespace
}  // namespace tilewise::generate
