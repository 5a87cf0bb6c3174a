// Address resolvers: every layout against a table written out by hand, and hostile contents of
// every array.
#include "core/kv_view.h"

#include <gtest/gtest.h>

#include <vector>

namespace tilewise::core {
namespace {

struct Faults {
  std::vector<Fault> seen;
  auto collector() {
    return [this](const Fault& fault) { seen.push_back(fault); };
  }
};

void expect_fault(const Faults& faults, FaultCode code, FaultWhat what, std::int64_t value) {
  ASSERT_FALSE(faults.seen.empty());
  EXPECT_EQ(faults.seen.front().code, code);
  EXPECT_EQ(faults.seen.front().what, what);
  EXPECT_EQ(faults.seen.front().value, value);
}

// A pool of 10 pages of 4 rows; request 0 has pages 7, 2, 5, request 1 page 3.
struct Paged {
  std::vector<std::int32_t> lens = {11, 3}, table = {7, 2, 5, -1, 3, 99, -7, -1},
                            indptr = {0, 3, 4}, indices = {7, 2, 5, 3}, last = {3, 3},
                            rows = {1, 0}, first = {0, 0};
  KvCache block() {
    KvCache kv{};
    kv.layout = KvLayout::kPaged;
    kv.lengths = KvLengths::kPerRequest;
    kv.kv_lens = lens.data();
    kv.max_kv_len = 1000;
    kv.page_size = 4;
    kv.page_table = table.data();
    kv.table_width = 4;
    kv.page_row_stride = 4;
    kv.page_table_rows = 2;
    kv.num_pages = 10;
    return kv;
  }
  KvCache csr() {
    KvCache kv = block();
    kv.page_table = indices.data();
    kv.page_indptr = indptr.data();
    kv.page_indices_len = 4;
    kv.kv_lens = nullptr;
    kv.lengths = KvLengths::kLastPage;
    kv.last_page_len = last.data();
    return kv;
  }
};

void expect_first_request(const KvCache& kv, std::int32_t r) {
  const RequestKv request = open_request(kv, r, IgnoreFaults{});
  ASSERT_EQ(request.len, 11);
  constexpr std::int64_t pages[] = {7, 2, 5};
  for (std::int64_t j = 0; j < 11; ++j) {
    const KvLocation at = locate(kv, request, j);
    EXPECT_EQ(at.block, pages[j / 4]);
    EXPECT_EQ(at.row, j % 4);
  }
}

TEST(KvView, BlockTableAndCsrNameTheSameRows) {
  Paged p;
  expect_first_request(p.block(), 0);
  expect_first_request(p.csr(), 0);
  KvCache by_rows = p.block();
  by_rows.page_rows = p.rows.data();  // request 1 reads row 0
  p.lens = {3, 11};
  by_rows.kv_lens = p.lens.data();
  expect_first_request(by_rows, 1);
}

TEST(KvView, ContiguousAndPackedFollowTheirStrides) {
  KvCache kv{};
  kv.layout = KvLayout::kContiguous;
  kv.lengths = KvLengths::kScalar;
  kv.kv_len = kv.max_kv_len = kv.capacity = 9;
  kv.k_stride = {1000, 10, 3};
  kv.v_stride = {7, -2, 500};
  const KvLocation at = locate(kv, open_request(kv, 2, IgnoreFaults{}), 5);
  EXPECT_EQ(k_offset(kv, at, 4), 2 * 1000 + 5 * 10 + 4 * 3);
  EXPECT_EQ(v_offset(kv, at, 4), 2 * 7 - 5 * 2 + 4 * 500);
  const std::vector<std::int32_t> indptr = {2, 5, 5, 9};
  kv.layout = KvLayout::kPacked;
  kv.lengths = KvLengths::kIndptr;
  kv.kv_indptr = indptr.data();
  constexpr std::int64_t lengths[] = {3, 0, 4};
  for (std::int32_t r = 0; r < 3; ++r) {
    const RequestKv request = open_request(kv, r, IgnoreFaults{});
    EXPECT_EQ(request.len, lengths[r]);
    EXPECT_EQ(locate(kv, request, 1).row, at.row - 4 + indptr[static_cast<std::size_t>(r)]);
    EXPECT_EQ(locate(kv, request, 1).block, 0);
  }
}

TEST(KvView, RunsCoverARangeAndEndAtPages) {
  Paged p;
  const KvCache kv = p.block();
  const RequestKv request = open_request(kv, 0, IgnoreFaults{});
  for (std::int64_t begin = 0; begin < 11; ++begin) {
    for (std::int64_t end = begin + 1; end <= 11; ++end) {
      std::int64_t at = begin;
      while (at < end) {
        const KvRun run = locate_run(kv, request, at, end);
        ASSERT_GT(run.keys, 0);
        ASSERT_LE(at + run.keys, end);
        for (std::int64_t n = 0; n < run.keys; ++n) {
          const KvLocation one = locate(kv, request, at + n);
          ASSERT_EQ(one.block, run.first.block);
          ASSERT_EQ(one.row, run.first.row + n);
        }
        at += run.keys;
      }
    }
  }
}

TEST(KvView, ReleasedPagesHolesAndBadIdsAreMissing) {
  Paged p;
  p.first = {2, 0};
  p.lens = {11 + 8, 16};
  KvCache kv = p.block();
  kv.first_page = p.first.data();
  RequestKv request = open_request(kv, 0, IgnoreFaults{});
  EXPECT_EQ(request.len, 19);
  for (std::int64_t j = 0; j < 8; ++j) EXPECT_LT(locate(kv, request, j).block, 0) << j;
  EXPECT_EQ(locate(kv, request, 8).block, 7);
  EXPECT_EQ(locate(kv, request, 18).block, 5);
  request = open_request(kv, 1, IgnoreFaults{});
  constexpr std::int64_t pages[] = {3, -1, -1, -1};  // 99 and -7 are no pages of this pool
  for (std::int64_t j = 0; j < 16; ++j) EXPECT_EQ(locate(kv, request, j).block, pages[j / 4]) << j;
}

struct BadLength {
  std::int32_t given;
  std::int64_t read;
  FaultCode code;
};

TEST(KvView, LengthsAreClampedToTheTableAndTheBound) {
  for (const BadLength bad :
       {BadLength{-1, 0, FaultCode::kNegative}, BadLength{INT32_MIN, 0, FaultCode::kNegative},
        BadLength{17, 16, FaultCode::kAboveBound},
        BadLength{INT32_MAX, 16, FaultCode::kAboveBound}}) {
    Paged p;
    p.lens = {bad.given, 3};
    Faults faults;
    EXPECT_EQ(open_request(p.block(), 0, faults.collector()).len, bad.read);
    expect_fault(faults, bad.code, FaultWhat::kKvLen, bad.given);
  }
  Paged p;
  KvCache kv = p.block();
  kv.max_kv_len = 5;
  Faults faults;
  EXPECT_EQ(open_request(kv, 0, faults.collector()).len, 5);
  expect_fault(faults, FaultCode::kAboveBound, FaultWhat::kKvLen, 11);
}

TEST(KvView, BadRowsOfThePageTableAreEmpty) {
  for (const std::int32_t row : {-1, 2, INT32_MAX, INT32_MIN}) {
    Paged p;
    p.rows = {row, 0};
    KvCache kv = p.block();
    kv.page_rows = p.rows.data();
    Faults faults;
    const RequestKv request = open_request(kv, 0, faults.collector());
    EXPECT_EQ(request.len, 0);
    EXPECT_EQ(request.table_len, 0);
    expect_fault(faults, row < 0 ? FaultCode::kNegative : FaultCode::kAboveBound,
                 FaultWhat::kPageRow, row);
  }
}

TEST(KvView, SpansStayInsideTheirExtentWhateverTheyHold) {
  const std::int32_t values[] = {INT32_MIN, -1, 0, 1, 3, 4, 5, INT32_MAX};
  for (const std::int32_t a : values) {
    for (const std::int32_t b : values) {
      const std::int32_t indptr[] = {a, b};
      Faults faults;
      const IndexSpan span = read_span(indptr, 0, 4, FaultWhat::kPageIndptr, faults.collector());
      EXPECT_GE(span.begin, 0);
      EXPECT_GE(span.length, 0);
      EXPECT_LE(span.begin + span.length, 4);
      const bool sound = a >= 0 && b >= a && b <= 4;
      EXPECT_EQ(faults.seen.empty(), sound) << a << " " << b;
      if (sound) {
        EXPECT_EQ(span.length, b - a);
      }
    }
  }
}

TEST(KvView, LastPageLengthsOutsideThePageAreClamped) {
  for (const std::int32_t last : {0, 5, -3, INT32_MAX}) {
    Paged p;
    p.last = {last, 3};
    Faults faults;
    const RequestKv request = open_request(p.csr(), 0, faults.collector());
    EXPECT_EQ(request.len, last < 1 ? 8 : 12);
    expect_fault(faults, last < 1 ? FaultCode::kNegative : FaultCode::kAboveBound,
                 FaultWhat::kLastPageLen, last);
  }
}

TEST(KvView, ARequestWithoutPagesDoesNotReadItsLastPageLength) {
  Paged p;
  p.indptr = {3, 3, 4};
  p.last = {-77, 3};
  Faults faults;
  EXPECT_EQ(open_request(p.csr(), 0, faults.collector()).len, 0);
  EXPECT_TRUE(faults.seen.empty());
}

TEST(KvView, SlotsOutsideThePoolAreMissing) {
  Paged p;
  const KvCache kv = p.block();
  for (std::int64_t slot = 0; slot < 40; ++slot) {
    const KvLocation at = locate_slot(kv, slot, 0, IgnoreFaults{});
    EXPECT_EQ(at.block * 4 + at.row, slot);
  }
  for (const std::int64_t slot :
       {std::int64_t{40}, std::int64_t{-2}, std::int64_t{INT32_MAX}, std::int64_t{INT32_MIN}}) {
    Faults faults;
    EXPECT_LT(locate_slot(kv, slot, 6, faults.collector()).block, 0);
    expect_fault(faults, slot < 0 ? FaultCode::kNegative : FaultCode::kAboveBound, FaultWhat::kSlot,
                 slot);
    EXPECT_EQ(faults.seen.front().row, 6);
  }
  Faults faults;
  EXPECT_LT(locate_slot(kv, -1, 0, faults.collector()).block, 0);
  EXPECT_TRUE(faults.seen.empty()) << "-1 is an expected skip";
}

}  // namespace
}  // namespace tilewise::core
