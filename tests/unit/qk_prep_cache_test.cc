// Where tw_qk_prep writes: every cache layout, holes and hostile positions, pages and slots; what
// is recorded; and that nothing else changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/prep_support.h"

namespace tilewise::testing {
namespace {

using core::DType;
using core::FaultCode;
using core::FaultWhat;

// Row `row` of the cache holds what the call computed for flat row `token`.
void expect_row(const PrepCall& call, const Cache& cache, core::KvLocation at, std::int64_t token) {
  for (std::int64_t h = 0; h < call.shape.kv_heads; ++h) {
    for (std::int64_t d = 0; d < call.shape.head_dim; ++d) {
      const std::int64_t from = (token * call.shape.kv_heads + h) * call.shape.head_dim + d;
      const DType type = cache.k.type();
      ASSERT_EQ(cache.k_at(at.block, at.row, h, d), core::round_to(type, call.k_out[from]));
      ASSERT_EQ(cache.v_at(at.block, at.row, h, d), core::round_to(type, call.v_out[from]));
    }
  }
  EXPECT_TRUE(cache.written(at.block, at.row));
}

// Two requests of 3 rows each, ending at lengths 5 and 9 unless the test says otherwise.
PrepShape two_requests() {
  PrepShape shape;
  shape.batch = 2;
  shape.q_len = 3;
  return shape;
}

TEST(QkPrepCache, WritesContiguousRowsAtTheEndOfEachRequest) {
  for (const DType cache_type : kAllTypes) {
    PrepCall call(two_requests());
    Cache cache(cache_type, 2, 12, 2, 64, 64);
    cache.use_contiguous({5, 9});
    call.use_cache(cache);
    call.run(2);
    for (std::int64_t i = 0; i < 3; ++i) {
      expect_row(call, cache, {0, 2 + i}, i);
      expect_row(call, cache, {1, 6 + i}, 3 + i);
    }
    EXPECT_EQ(cache.touched_rows(), 6);
    EXPECT_TRUE(cache.k.guards_intact() && cache.v.guards_intact());
    // Positions follow the lengths, too.
    EXPECT_EQ(head_of(call.q_out, 3, 64, 4, 1),
              emulated_head(call.p, head_of(call.q, 3, 64, 4, 1), call.q_weight, 7));
  }
}

TEST(QkPrepCache, WritesPackedRows) {
  PrepCall call(two_requests());
  Cache cache(DType::kBf16, 1, 20, 2, 64, 64, true);
  cache.use_packed({1, 6, 15});
  call.use_cache(cache);
  call.run();
  for (std::int64_t i = 0; i < 3; ++i) {
    expect_row(call, cache, {0, 3 + i}, i);
    expect_row(call, cache, {0, 12 + i}, 3 + i);
  }
  EXPECT_EQ(cache.touched_rows(), 6);
}

TEST(QkPrepCache, WritesPagesOfEitherOrderAndKeepsTheirNeighbours) {
  for (const bool heads_first : {false, true}) {
    PrepCall call(two_requests());
    Cache cache(DType::kBf16, 8, 4, 2, 64, 64, heads_first);
    cache.use_pages({5, 9}, {6, 1, -1, 3, 7, 0}, 3);
    call.use_cache(cache);
    call.run(2);
    expect_row(call, cache, {6, 2}, 0);
    expect_row(call, cache, {6, 3}, 1);
    expect_row(call, cache, {1, 0}, 2);
    expect_row(call, cache, {7, 2}, 3);
    expect_row(call, cache, {7, 3}, 4);
    expect_row(call, cache, {0, 0}, 5);
    EXPECT_EQ(cache.touched_rows(), 6);
  }
}

TEST(QkPrepCache, ReadsRaggedPagesWithReleasedFronts) {
  PrepShape shape = two_requests();
  PrepCall call(shape);
  Cache cache(DType::kBf16, 8, 4, 2, 64, 64);
  const std::vector<std::int32_t> q_indptr{0, 1, 6};
  const std::vector<std::int32_t> page_indptr{0, 1, 3};
  const std::vector<std::int32_t> last{2, 1};
  const std::vector<std::int32_t> first_page{0, 2};  // request 1: length 13, rows 8 to 12
  const std::vector<std::int32_t> pages{5, 2, 4};
  cache.use_pages({}, pages, 0);
  cache.kv.lengths = core::KvLengths::kLastPage;
  cache.kv.last_page_len = last.data();
  cache.kv.page_indptr = page_indptr.data();
  cache.kv.page_indices_len = 3;
  cache.kv.first_page = first_page.data();
  call.use_ragged(q_indptr);
  call.use_cache(cache);
  EXPECT_TRUE(same_fault(call.run_recorded(2), {}));
  expect_row(call, cache, {5, 1}, 0);
  for (std::int64_t i = 0; i < 4; ++i) expect_row(call, cache, {2, i}, 1 + i);
  expect_row(call, cache, {4, 0}, 5);
  EXPECT_EQ(cache.touched_rows(), 6);
  EXPECT_EQ(head_of(call.q_out, 3, 64, 5, 0),
            emulated_head(call.p, head_of(call.q, 3, 64, 5, 0), call.q_weight, 12));
}

TEST(QkPrepCache, LeavesRowsOfReleasedAndMissingPagesOutInSilence) {
  PrepCall call(two_requests());
  Cache cache(DType::kBf16, 8, 4, 2, 64, 64);
  const std::vector<std::int32_t> first_page{1, 0};  // request 0: rows 2 and 3 are released
  cache.use_pages({5, 9}, {6, 1, -1, 3, -1, 0}, 3);
  cache.kv.first_page = first_page.data();
  call.use_cache(cache);
  EXPECT_TRUE(same_fault(call.run_recorded(), {}));
  expect_row(call, cache, {6, 0}, 2);
  expect_row(call, cache, {0, 0}, 5);  // the page of rows 6 and 7 is a hole
  EXPECT_EQ(cache.touched_rows(), 2);
  EXPECT_FALSE(call.q_out.untouched(0) || call.k_out.untouched(0));
}

TEST(QkPrepCache, B41_SkipsPaddedSlotsWhateverTheirPositions) {
  PrepShape shape;
  shape.q_len = 6;
  PrepCall call(shape);
  Cache cache(DType::kBf16, 4, 16, 2, 64, 64);
  cache.use_slots();
  const std::vector<std::int32_t> slots{17, 3, -1, 63, -1, 0};
  const std::vector<std::int32_t> positions{1, 2, 1 << 30, 4, -7, 6};
  call.p.slot_mapping = slots.data();
  call.p.positions = positions.data();
  call.use_cache(cache);
  EXPECT_TRUE(same_fault(call.run_recorded(), {}));
  expect_row(call, cache, {1, 1}, 0);
  expect_row(call, cache, {0, 3}, 1);
  expect_row(call, cache, {3, 15}, 3);
  expect_row(call, cache, {0, 0}, 5);
  EXPECT_EQ(cache.touched_rows(), 4);
  const std::int64_t row = shape.q_heads * shape.head_dim;
  EXPECT_TRUE(call.q_out.untouched(2 * row, 3 * row) && call.q_out.untouched(4 * row, 5 * row));
}

TEST(QkPrepCache, CountsPositionsFromZeroWhereSlotsReplaceTheLengths) {
  PrepCall call(two_requests());
  Cache cache(DType::kBf16, 1, 16, 2, 64, 64);
  cache.use_slots();
  const std::vector<std::int32_t> slots{9, 7, 5, 3, 1, -1};
  call.p.slot_mapping = slots.data();
  call.use_cache(cache);
  call.run();
  EXPECT_EQ(head_of(call.q_out, 3, 64, 4, 2),
            emulated_head(call.p, head_of(call.q, 3, 64, 4, 2), call.q_weight, 1));
  expect_row(call, cache, {0, 1}, 4);
  EXPECT_EQ(cache.touched_rows(), 5);
}

TEST(QkPrepCache, RefusesAPositionOutsideTheTable) {
  for (const std::int32_t bad : {-1, 64, INT32_MAX, INT32_MIN}) {
    PrepShape shape;
    shape.q_len = 3;
    PrepCall call(shape);
    Cache cache(DType::kBf16, 1, 80, 2, 64, 64);
    cache.use_contiguous({80});
    const std::vector<std::int32_t> positions{5, bad, 63};
    call.p.positions = positions.data();
    call.use_cache(cache);
    const cpu::FaultRecord wanted = fault(bad < 0 ? FaultCode::kNegative : FaultCode::kAboveBound,
                                          FaultWhat::kPosition, 0, 1, bad);
    EXPECT_TRUE(same_fault(call.run_recorded(), wanted));
    EXPECT_TRUE(call.q_out.untouched(192, 2 * 192) && call.k_out.untouched(128, 2 * 128));
    EXPECT_FALSE(call.v_out.untouched(128));  // V needs no position
    EXPECT_EQ(cache.touched_rows(), 2);
    expect_row(call, cache, {0, 5}, 0);
    expect_row(call, cache, {0, 63}, 2);
  }
}

TEST(QkPrepCache, RefusesTheCacheButNotTheOutputsWhereThePlaceIsBad) {
  struct Case {
    std::vector<std::int32_t> lens, table;
    cpu::FaultRecord wanted;
    std::int64_t touched;
  };
  const Case cases[] = {
      {{5, 9}, {6, 8, -1, 3, 7, 0}, fault(FaultCode::kAboveBound, FaultWhat::kPageId, 0, 2, 8), 5},
      {{5, 9}, {6, 1, -1, 3, -2, 0}, fault(FaultCode::kNegative, FaultWhat::kPageId, 1, 0, -2), 4},
      {{5, 99}, {6, 1, 2, 3, 7, 0}, fault(FaultCode::kAboveBound, FaultWhat::kKvLen, 1, -1, 99), 6},
      {{2, 9}, {6, 1, -1, 3, 7, 0}, fault(FaultCode::kNegative, FaultWhat::kPosition, 0, 0, -1), 5},
  };
  for (const Case& c : cases) {
    for (const std::int32_t workers : {1, 4}) {
      PrepCall call(two_requests());
      Cache cache(DType::kBf16, 8, 4, 2, 64, 64);
      cache.use_pages(c.lens, c.table, 3);
      call.use_cache(cache);
      EXPECT_TRUE(same_fault(call.run_recorded(workers), c.wanted));
      EXPECT_EQ(cache.touched_rows(), c.touched);
      const bool position_bad = c.wanted.what == static_cast<std::int32_t>(FaultWhat::kPosition);
      EXPECT_EQ(call.q_out.untouched(0, 192), position_bad);
      EXPECT_FALSE(call.q_out.untouched(192 * 5));
    }
  }
}

TEST(QkPrepCache, RefusesSlotsOutsideThePool) {
  PrepCall call(two_requests());
  Cache cache(DType::kBf16, 4, 16, 2, 64, 64);
  cache.use_slots();
  const std::vector<std::int32_t> slots{0, 1, -1, 2, 64, -2};
  call.p.slot_mapping = slots.data();
  call.use_cache(cache);
  const cpu::FaultRecord wanted = fault(FaultCode::kAboveBound, FaultWhat::kSlot, 1, 1, 64);
  EXPECT_TRUE(same_fault(call.run_recorded(3), wanted));
  EXPECT_EQ(cache.touched_rows(), 3);
  EXPECT_FALSE(call.q_out.untouched(192 * 4) || call.k_out.untouched(128 * 5));
}

TEST(QkPrepCache, RefusesAPositionPastTheRequestsLength) {
  PrepShape shape;
  shape.q_len = 1;
  PrepCall call(shape);
  Cache cache(DType::kBf16, 1, 80, 2, 64, 64);
  cache.use_contiguous({20});
  const std::int32_t position = 20;
  call.p.start = &position;
  call.use_cache(cache);
  const cpu::FaultRecord wanted = fault(FaultCode::kAboveBound, FaultWhat::kPosition, 0, 0, 20);
  EXPECT_TRUE(same_fault(call.run_recorded(), wanted));
  EXPECT_EQ(cache.touched_rows(), 0);
  EXPECT_FALSE(call.q_out.untouched(0));  // inside the table, so it can be rotated
}

TEST(QkPrepCache, KeepsTheFirstFaultAndWhatWasThere) {
  PrepCall call(two_requests());
  const std::vector<std::int32_t> positions{0, 70, -3, 0, 71, 0};
  call.p.positions = positions.data();
  const cpu::FaultRecord first = fault(FaultCode::kAboveBound, FaultWhat::kPosition, 0, 1, 70);
  EXPECT_TRUE(same_fault(call.run_recorded(5), first));
  cpu::FaultRecord before = fault(FaultCode::kNegative, FaultWhat::kMask, 9, 9, 9);
  const cpu::FaultRecord kept = before;
  cpu::run_qk_prep(call.p, threads(2), &before);
  EXPECT_TRUE(same_fault(before, kept));
}

TEST(QkPrepCache, StaysInsideTheRowsWhateverTheIndptrSays) {
  const std::vector<std::vector<std::int32_t>> hostile{
      {0, 9, 3}, {-4, 2, 6}, {0, 5, INT32_MAX}, {6, 0, 6}, {2, INT32_MIN, 4}, {INT32_MAX, 0, 0}};
  for (const std::vector<std::int32_t>& indptr : hostile) {
    PrepCall one(two_requests());
    PrepCall many(two_requests());
    for (PrepCall* call : {&one, &many}) call->use_ragged(indptr);
    const cpu::FaultRecord record = one.run_recorded(1);
    EXPECT_EQ(record.what, static_cast<std::int32_t>(FaultWhat::kQIndptr));
    EXPECT_TRUE(same_fault(many.run_recorded(6), record));
    EXPECT_EQ(one.q_out, many.q_out);
    EXPECT_TRUE(one.q_out.guards_intact() && one.k_out.guards_intact());
  }
}

TEST(QkPrepCache, DividesRaggedRowsLikeSingleRequests) {
  PrepShape shape;
  shape.q_len = 700;
  shape.q_heads = shape.kv_heads = 1;
  shape.table_rows = 700;
  PrepCall call(shape);
  // Empty requests at both ends and in the middle, rows before the first and after the last
  // request.
  const std::vector<std::int32_t> indptr{2, 2, 2, 300, 301, 301, 690, 690};
  call.use_ragged(indptr);
  call.run(3);
  EXPECT_TRUE(call.q_out.untouched(0, 2 * 64) && call.q_out.untouched(690 * 64, 700 * 64));
  for (std::size_t r = 0; r + 1 < indptr.size(); ++r) {
    for (std::int64_t row = indptr[r]; row < indptr[r + 1]; ++row) {
      ASSERT_EQ(
          head_of(call.q_out, 1, 64, row, 0),
          emulated_head(call.p, head_of(call.q, 1, 64, row, 0), call.q_weight, row - indptr[r]));
    }
  }
}

TEST(QkPrepCache, DoesNothingForNoRows) {
  for (const core::TokenRows& tokens : {dense_rows(0, 3), dense_rows(2, 0)}) {
    PrepCall call(two_requests());
    call.p.tokens = tokens;
    EXPECT_TRUE(same_fault(call.run_recorded(2), {}));
    EXPECT_TRUE(call.q_out.untouched(0, call.q_out.count()));
  }
}

TEST(QkPrepCache, ReturnsAtOnceWhereThereIsNothingToWrite) {
  core::QkPrep p{};
  p.tokens = dense_rows(INT32_MAX, INT32_MAX);  // would take centuries
  p.dtype = p.kv_dtype = p.weight_dtype = DType::kBf16;
  p.head_dim = 64;
  cpu::FaultRecord record{};
  cpu::run_qk_prep(p, threads(2), &record);
  EXPECT_TRUE(same_fault(record, {}));
}

TEST(QkPrepCache, CopiesVWithNansAndAll) {
  PrepShape shape;
  shape.q_len = 1;
  PrepCall call(shape);
  call.v.set(5, NAN);
  Cache cache(DType::kBf16, 1, 4, 2, 64, 64);
  cache.use_contiguous({1});
  call.use_cache(cache);
  call.run();
  EXPECT_EQ(call.v_out, call.v);
  EXPECT_TRUE(std::isnan(cache.v_at(0, 0, 0, 5)));
  EXPECT_EQ(cache.v_at(0, 0, 0, 6), call.v[6]);
  EXPECT_FALSE(std::isnan(cache.k_at(0, 0, 0, 5)));
}

TEST(QkPrepCache, ServesQAloneAndKAlone) {
  PrepShape shape;
  PrepCall both(shape);
  both.run();
  PrepCall q_only(shape);
  q_only.p.kv_heads = 0;
  q_only.p.k = q_only.p.v = {};
  q_only.p.k_out = q_only.p.v_out = {};
  q_only.run();
  EXPECT_EQ(q_only.q_out, both.q_out);
  PrepCall k_only(shape);
  k_only.p.q_heads = 0;
  k_only.p.q = {};
  k_only.p.q_out = {};
  k_only.run();
  EXPECT_EQ(k_only.k_out, both.k_out);
  EXPECT_EQ(k_only.v_out, both.v_out);
}

}  // namespace
}  // namespace tilewise::testing
