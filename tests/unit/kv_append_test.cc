// tw_kv_append: each form puts each row where it belongs, converted once, and changes nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/ops_support.h"

namespace tilewise::testing {
namespace {

using core::DType;
using core::FaultCode;
using core::FaultWhat;

struct AppendShape {
  DType type = DType::kBf16, cache_type = DType::kBf16;
  std::int64_t rows = 6;
  std::int32_t heads = 3, k_dim = 64, v_dim = 32;
};

struct AppendCall {
  AppendCall(const AppendShape& s, Cache& cache)
      : k(s.type, s.rows * s.heads * s.k_dim), v(s.type, s.rows * s.heads * s.v_dim) {
    k.fill_normal(38, 3);
    v.fill_normal(38, 4);
    p.tokens = dense_rows(1, s.rows);
    p.kv_dtype = s.cache_type;
    p.kv_heads = s.heads;
    p.head_dim = s.k_dim;
    p.v_head_dim = s.v_dim;
    p.rows = {k.data(), v.data(), s.type, plain_strides(s.rows, s.heads, s.k_dim),
              plain_strides(s.rows, s.heads, s.v_dim)};
    p.kv = cache.kv;
  }
  AppendCall(const AppendCall&) = delete;
  AppendCall& operator=(const AppendCall&) = delete;

  cpu::FaultRecord run(std::int32_t workers = 1) {
    cpu::FaultRecord record{};
    cpu::run_kv_append(p, threads(workers), &record);
    return record;
  }
  void expect_row(const Cache& cache, core::KvLocation at, std::int64_t row) const {
    for (std::int64_t h = 0; h < p.kv_heads; ++h) {
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        ASSERT_EQ(cache.k_at(at.block, at.row, h, d),
                  core::round_to(p.kv_dtype, k[(row * p.kv_heads + h) * p.head_dim + d]));
      }
      for (std::int64_t d = 0; d < p.v_head_dim; ++d) {
        ASSERT_EQ(cache.v_at(at.block, at.row, h, d),
                  core::round_to(p.kv_dtype, v[(row * p.kv_heads + h) * p.v_head_dim + d]));
      }
    }
  }

  Elements k, v;
  core::KvAppend p{};
};

TEST(KvAppend, B38_CrossesPageAndHeadBoundaries) {
  for (const bool heads_first : {false, true}) {
    for (const DType cache_type : kAllTypes) {
      AppendShape shape;
      shape.rows = 25;
      shape.v_dim = 64;
      shape.cache_type = cache_type;
      Cache cache(cache_type, 8, 16, 3, 64, 64, heads_first);
      const std::vector<std::int32_t> table{5, 0, -1, -1, 2, -1, -1, -1, 1, 7, 3, 6};
      cache.use_pages({18, 16, 50}, table, 4);
      AppendCall call(shape, cache);
      const std::vector<std::int32_t> indptr{0, 4, 5, 25};
      call.p.tokens = ragged_rows(indptr, 25);
      call.p.rows.k_stride.batch = call.p.rows.v_stride.batch = 0;
      EXPECT_TRUE(same_fault(call.run(2), {}));
      const std::int64_t first_position[] = {14, 15, 30};
      for (std::int64_t r = 0; r < 3; ++r) {
        for (std::int64_t i = 0;
             i < indptr[static_cast<std::size_t>(r) + 1] - indptr[static_cast<std::size_t>(r)];
             ++i) {
          const std::int64_t position = first_position[r] + i;
          const std::int64_t page = table[static_cast<std::size_t>(r * 4 + position / 16)];
          call.expect_row(cache, {page, position % 16}, indptr[static_cast<std::size_t>(r)] + i);
        }
      }
      EXPECT_EQ(cache.touched_rows(), 25);
      EXPECT_TRUE(cache.k.guards_intact() && cache.v.guards_intact());
    }
  }
}

TEST(KvAppend, B41_SkipsPaddedSlots) {
  AppendShape shape;
  shape.rows = 509;  // the key tensor has three rows more
  shape.heads = 2;
  Cache cache(DType::kBf16, 40, 16, 2, 64, 32);
  cache.use_slots();
  AppendCall call(shape, cache);
  std::vector<std::int32_t> slots(509, -1);
  for (std::int32_t i = 0; i < 500; ++i) slots[static_cast<std::size_t>(i)] = (i * 7 + 3) % 640;
  call.p.slot_mapping = slots.data();
  EXPECT_TRUE(same_fault(call.run(2), {}));
  for (std::int64_t i = 0; i < 500; ++i) {
    const std::int64_t slot = slots[static_cast<std::size_t>(i)];
    call.expect_row(cache, {slot / 16, slot % 16}, i);
  }
  EXPECT_EQ(cache.touched_rows(), 500);
}

TEST(KvAppend, B100_FollowsPagesThatDoNotFollowEachOther) {
  AppendShape shape;
  shape.rows = 5;
  Cache paged(DType::kBf16, 12, 16, 3, 64, 32);
  paged.use_pages({19}, {9, 3, 7}, 3);
  Cache contiguous(DType::kBf16, 1, 32, 3, 64, 32);
  contiguous.use_contiguous({19});
  AppendCall into_pages(shape, paged);
  AppendCall into_rows(shape, contiguous);
  into_pages.run();
  into_rows.run();
  for (std::int64_t position = 14; position < 19; ++position) {
    const std::int64_t page = position < 16 ? 9 : 3;
    for (std::int64_t d = 0; d < 64; ++d) {
      ASSERT_EQ(paged.k_at(page, position % 16, 2, d), contiguous.k_at(0, position, 2, d));
    }
    into_pages.expect_row(paged, {page, position % 16}, position - 14);
  }
  EXPECT_EQ(paged.touched_rows(), 5);
  for (std::int64_t row = 0; row < 16; ++row) EXPECT_TRUE(paged.untouched(10, row));
}

TEST(KvAppend, PutsPairsWhereTheySay) {
  AppendShape shape;
  Cache cache(DType::kBf16, 3, 10, 3, 64, 32);
  cache.use_contiguous({10, 4, 7});
  AppendCall call(shape, cache);
  call.p.tokens.batch = 3;
  const std::vector<std::int32_t> requests{2, 0, 2, 1, 0, 0};
  const std::vector<std::int32_t> positions{6, 9, 0, 3, 1, 5};
  call.p.batch_indices = requests.data();
  call.p.positions = positions.data();
  EXPECT_TRUE(same_fault(call.run(3), {}));
  for (std::size_t i = 0; i < 6; ++i) {
    call.expect_row(cache, {requests[i], positions[i]}, static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(cache.touched_rows(), 6);
}

TEST(KvAppend, RefusesBadPairsAndRecordsTheFirst) {
  AppendShape shape;
  Cache cache(DType::kBf16, 3, 10, 3, 64, 32);
  cache.use_contiguous({10, 4, 7});
  AppendCall call(shape, cache);
  call.p.tokens.batch = 3;
  std::vector<std::int32_t> requests{2, 3, -1, 1, INT32_MAX, 0};
  std::vector<std::int32_t> positions{6, 0, 0, 4, 0, -1};  // request 1 has 4 keys
  call.p.batch_indices = requests.data();
  call.p.positions = positions.data();
  EXPECT_TRUE(
      same_fault(call.run(4), fault(FaultCode::kAboveBound, FaultWhat::kBatchIndex, 0, 1, 3)));
  call.expect_row(cache, {2, 6}, 0);
  EXPECT_EQ(cache.touched_rows(), 1);
  requests = {2, 1, 1, 1, 1, 0};
  EXPECT_TRUE(same_fault(call.run(), fault(FaultCode::kAboveBound, FaultWhat::kPosition, 1, 3, 4)));
}

TEST(KvAppend, RefusesBadSlotsPagesAndRowsBeforeTheFirstKey) {
  AppendShape shape;
  Cache pool(DType::kBf16, 4, 16, 3, 64, 32);
  pool.use_slots();
  AppendCall by_slot(shape, pool);
  const std::vector<std::int32_t> slots{0, 64, -2, INT32_MAX, INT32_MIN, 63};
  by_slot.p.slot_mapping = slots.data();
  EXPECT_TRUE(
      same_fault(by_slot.run(2), fault(FaultCode::kAboveBound, FaultWhat::kSlot, 0, 1, 64)));
  EXPECT_EQ(pool.touched_rows(), 2);

  Cache pages(DType::kBf16, 4, 4, 3, 64, 32);
  pages.use_pages({10}, {0, 4, 1}, 3);
  AppendCall to_page(shape, pages);
  EXPECT_TRUE(
      same_fault(to_page.run(2), fault(FaultCode::kAboveBound, FaultWhat::kPageId, 0, 0, 4)));
  EXPECT_EQ(pages.touched_rows(), 2);

  Cache small(DType::kBf16, 1, 4, 3, 64, 32);
  small.use_contiguous({4});
  AppendCall too_many(shape, small);  // six rows end at length 4
  EXPECT_TRUE(
      same_fault(too_many.run(2), fault(FaultCode::kNegative, FaultWhat::kPosition, 0, 0, -2)));
  for (std::int64_t row = 0; row < 4; ++row) too_many.expect_row(small, {0, row}, row + 2);
}

TEST(KvAppend, LeavesHolesOutInSilence) {
  AppendShape shape;
  Cache cache(DType::kBf16, 4, 4, 3, 64, 32);
  cache.use_pages({10}, {0, -1, 1}, 3);
  AppendCall call(shape, cache);
  EXPECT_TRUE(same_fault(call.run(), {}));
  EXPECT_EQ(cache.touched_rows(), 2);
}

TEST(KvAppend, KeepsTheBytesOfRowsOfTheSameType) {
  AppendShape shape;
  shape.rows = 1;
  Cache cache(DType::kBf16, 1, 4, 3, 64, 32);
  cache.use_contiguous({1});
  AppendCall call(shape, cache);
  static_cast<std::uint16_t*>(call.k.data())[3] = 0x7F81;  // a signalling NaN with a payload
  call.run();
  EXPECT_EQ(static_cast<const std::uint16_t*>(cache.k.data())[3], 0x7F81);
}

TEST(KvAppend, ConvertsBetweenAllTypesWithOneRounding) {
  for (const DType from : kAllTypes) {
    for (const DType to : kAllTypes) {
      AppendShape shape;
      shape.type = from;
      shape.cache_type = to;
      shape.k_dim = 72;
      Cache cache(to, 1, 6, 3, 72, 32);
      cache.use_contiguous({6});
      AppendCall call(shape, cache);
      call.run(2);
      for (std::int64_t row = 0; row < 6; ++row) call.expect_row(cache, {0, row}, row);
    }
  }
}

TEST(KvAppend, TakesSeventyThousandRows) {
  AppendShape shape;
  shape.rows = 70000;
  shape.heads = 1;
  shape.k_dim = shape.v_dim = 8;
  Cache cache(DType::kBf16, 1, 70001, 1, 8, 8);
  cache.use_contiguous({70001});
  AppendCall call(shape, cache);
  EXPECT_TRUE(same_fault(call.run(2), {}));
  EXPECT_TRUE(cache.untouched(0, 0));
  for (std::int64_t row = 0; row < 70000; ++row) call.expect_row(cache, {0, row + 1}, row);
}

}  // namespace
}  // namespace tilewise::testing
