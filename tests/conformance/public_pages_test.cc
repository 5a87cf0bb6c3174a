// Public bug reports about page tables: stale entries, holes, bad ids, inconsistent lengths. Names
// carry the ids of docs/cases.md.
#include <algorithm>
#include <numeric>

#include "tests/support/attend.h"

namespace tilewise::tests {
namespace {

using verify::Storage;

Case paged_case(tw_dtype type, std::vector<verify::Request> requests, Index page_size = 16) {
  Case c = make_case(type, 8, 2, 64, std::move(requests));
  c.storage = Storage::kBlockTable;
  c.page_size = page_size;
  return c;
}

// A call whose block table may be changed entry by entry.
class TableCall {
 public:
  explicit TableCall(const Problem& p) : call_(p), table_(copy(call_)) {
    call_.kv().page_table = table_.data();
  }
  std::int32_t& entry(Index r, Index n) {
    return at(table_, call_.kv().page_rows[r] * call_.kv().page_row_stride + n);
  }
  Index width() { return call_.kv().page_table_width; }
  verify::Call& call() { return call_; }

 private:
  static std::vector<std::int32_t> copy(verify::Call& call) {
    const tw_kv_cache& kv = call.kv();
    return std::vector<std::int32_t>(kv.page_table,
                                     kv.page_table + kv.page_table_rows * kv.page_row_stride);
  }
  verify::Call call_;
  std::vector<std::int32_t> table_;
};

TEST(PublicCases, B16EntriesPastTheLengthAreNotFollowed) {
  for (const Index q_len : {1, 20}) {
    const Problem p(paged_case(TW_DTYPE_BF16, {{q_len, 1}, {q_len, 16}, {q_len, 33}}));
    for (const int variant : usable_variants(p)) {
      TableCall table(p);
      const auto expected = table.call().run({variant}).bytes;
      for (const std::int32_t garbage : {-1, 2147483647, -2147483647, 0}) {
        for (Index r = 0; r < 3; ++r) {
          for (Index n = (p.kv_len(r) + 15) / 16; n < table.width(); ++n)
            table.entry(r, n) = garbage;
        }
        const Answer answer = table.call().run({variant});
        EXPECT_EQ(answer.bytes, expected) << garbage;
        EXPECT_EQ(answer.fault.code, TW_FAULT_NONE) << "an entry that nobody needs is no fault";
      }
    }
  }
}

TEST(PublicCases, B19EveryOutputRowIsWritten) {
  Case c = paged_case(TW_DTYPE_BF16, {{1, 1024}, {1, 1024}}, 256);
  c.q_heads = c.kv_heads = 4;
  expect_right(Problem(c));
  c.requests = {{1, 1000}, {1, 3}};
  expect_right(Problem(c));
}

// Bad ids read as holes, and the record names the first of them.
TEST(PublicCases, B50BadPageIdsAreInvisibleAndRecorded) {
  for (const Index q_len : {1, 18}) {
    const Problem p(paged_case(TW_DTYPE_FP32, {{q_len, 40}, {q_len, 100}}));
    for (const std::int32_t bad : {99, -5, 2147483647}) {
      for (const int variant : usable_variants(p)) {
        TableCall holes(p), table(p);
        holes.entry(1, 2) = -1;
        table.entry(1, 2) = bad;
        const Answer expected = holes.call().run({variant}), answer = table.call().run({variant});
        EXPECT_EQ(answer.bytes, expected.bytes);
        EXPECT_EQ(expected.fault.code, TW_FAULT_NONE);
        EXPECT_EQ(answer.fault.what, TW_WHAT_PAGE_ID);
        EXPECT_EQ(answer.fault.code, bad < 0 ? TW_FAULT_NEGATIVE : TW_FAULT_ABOVE_BOUND);
        EXPECT_EQ(answer.fault.request, 1);
        EXPECT_EQ(answer.fault.row, 2);
        EXPECT_EQ(answer.fault.value, bad);
      }
    }
  }
}

TEST(PublicCases, B50ABadIdOutsideEveryWindowIsNoFault) {
  Case c = paged_case(TW_DTYPE_FP32, {{1, 100}});
  c.window_left = 20;
  const Problem p(c);
  TableCall table(p);
  const auto expected = table.call().run().bytes;
  table.entry(0, 0) = 99;
  const Answer answer = table.call().run();
  EXPECT_EQ(answer.bytes, expected);
  EXPECT_EQ(answer.fault.code, TW_FAULT_NONE);
}

TEST(PublicCases, B61LengthsThatDoNotFitAreClampedAndRecorded) {
  Case c = paged_case(TW_DTYPE_FP32, {{1, 32}, {1, 32}});
  c.storage = Storage::kCsr;
  c.lengths = verify::Lengths::kLastPage;
  const Problem p(c);
  verify::Call call(p);
  const auto good = call.run();
  EXPECT_EQ(good.fault.code, TW_FAULT_NONE) << "a full last page is right";
  for (const std::int32_t last : {0, 17, -1}) {
    const std::vector<std::int32_t> lens = {16, last};
    call.kv().last_page_len = lens.data();
    const Answer answer = call.run();
    EXPECT_EQ(answer.status, TW_OK);
    EXPECT_EQ(answer.fault.what, TW_WHAT_LAST_PAGE_LEN);
    EXPECT_EQ(answer.fault.request, 1);
    EXPECT_EQ(answer.fault.value, last);
    EXPECT_EQ(request_bytes(p, answer, 0), request_bytes(p, good, 0));
    if (last > 16) {  // 17 of 16 rows is a full page
      EXPECT_EQ(request_bytes(p, answer, 1), request_bytes(p, good, 1));
    }
  }
}

TEST(PublicCases, B61AFallingIndptrIsAnEmptyRequest) {
  Case c = paged_case(TW_DTYPE_FP32, {{1, 32}, {1, 32}});
  c.storage = Storage::kCsr;
  const Problem p(c);
  verify::Call call(p);
  const auto good = call.run();
  const std::int32_t* indptr = call.kv().page_indptr;
  const std::vector<std::int32_t> falling = {indptr[0], indptr[1], indptr[0]};
  call.kv().page_indptr = falling.data();
  const Answer answer = call.run();
  EXPECT_EQ(answer.status, TW_OK);
  EXPECT_EQ(answer.fault.what, TW_WHAT_PAGE_INDPTR);
  EXPECT_EQ(answer.fault.code, TW_FAULT_DISAGREES);
  EXPECT_EQ(request_bytes(p, answer, 0), request_bytes(p, good, 0));
  expect_empty_row(p, answer, 1, 0);
}

TEST(PublicCases, B62EvictedPagesLeftOfTheWindowAreHoles) {
  for (const Index q_len : {1, 4, 20}) {
    Case c = paged_case(TW_DTYPE_BF16, {{q_len, 200}});
    c.causal = true;
    c.window_left = 40;
    const Problem p(c);
    for (const int variant : usable_variants(p)) {
      TableCall table(p);
      const auto expected = table.call().run({variant}).bytes;
      const Index gone = (200 - q_len - 40) / 16;
      for (Index n = 0; n < gone; ++n) table.entry(0, n) = -1;
      const Answer answer = table.call().run({variant});
      EXPECT_EQ(answer.bytes, expected);
      EXPECT_EQ(answer.fault.code, TW_FAULT_NONE);
    }
  }
}

TEST(PublicCases, B71ANegativeLengthIsAnEmptyRequestAndRecorded) {
  Case c = paged_case(TW_DTYPE_FP32, {{1, 5}, {1, 5}});
  for (const Storage storage : {Storage::kBlockTable, Storage::kContiguous}) {
    c.storage = storage;
    const Problem p(c);
    verify::Call call(p);
    const auto good = call.run();
    const std::vector<std::int32_t> lens = {-1, 5};
    call.kv().kv_lens = lens.data();
    const Answer answer = call.run();
    EXPECT_EQ(answer.fault.code, TW_FAULT_NEGATIVE);
    EXPECT_EQ(answer.fault.what, TW_WHAT_KV_LEN);
    EXPECT_EQ(answer.fault.value, -1);
    expect_empty_row(p, answer, 0, 0);
    EXPECT_EQ(request_bytes(p, answer, 1), request_bytes(p, good, 1));
  }
}

TEST(PublicCases, B77APageTableIsUsed) {
  for (const Index q_len : {1, 30}) {
    Case c = paged_case(TW_DTYPE_BF16, {{q_len, 50}});
    Case gathered = c;
    gathered.storage = Storage::kContiguous;
    const Problem p(c), plain(gathered);
    for (const int variant : usable_variants(p))
      EXPECT_EQ(verify::attend(p, {variant}).bytes, verify::attend(plain, {variant}).bytes);
  }
}

TEST(PublicCases, B86ALengthBeyondTheTableIsClampedOrRefused) {
  Case c = paged_case(TW_DTYPE_FP32, {{1, 128}, {1, 128}, {1, 128}, {1, 128}});
  const Problem p(c);
  TableCall table(p);
  const auto expected = table.call().run();
  table.call().kv().page_table_width = 8;  // of 16 tokens each
  const std::vector<std::int32_t> lens = {128, 129, 128, 128};
  table.call().kv().kv_lens = lens.data();
  table.call().args().max_kv_len = 0;
  const Answer answer = table.call().run();
  EXPECT_EQ(answer.bytes, expected.bytes);
  EXPECT_EQ(answer.fault.code, TW_FAULT_ABOVE_BOUND);
  EXPECT_EQ(answer.fault.what, TW_WHAT_KV_LEN);
  EXPECT_EQ(answer.fault.request, 1);
  EXPECT_EQ(answer.fault.value, 129);
  table.call().kv().kv_lens = nullptr;
  table.call().kv().kv_len = 129;  // known to the host: refused before anything runs
  const Answer refused = table.call().run();
  EXPECT_EQ(refused.status, TW_INVALID_ARGUMENT);
  EXPECT_NE(refused.error.find("129"), std::string::npos) << refused.error;
}

TEST(PublicCases, B106APermutationOfPagesChangesNoByte) {
  for (const Index q_len : {1, 20}) {
    Case c = paged_case(TW_DTYPE_BF16, {{q_len, 100}});
    const Problem first(c);
    for (const int variant : usable_variants(first)) {
      const auto expected = verify::attend(first, {variant}).bytes;
      for (c.pool_seed = 1; c.pool_seed <= 20; ++c.pool_seed)
        EXPECT_EQ(verify::attend(Problem(c), {variant}).bytes, expected) << c.pool_seed;
    }
  }
}

}  // namespace
}  // namespace tilewise::tests
