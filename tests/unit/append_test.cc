// Rows that an attention call appends: where they go, what they become, and what is attended where
// no slot is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cpu/backend.h"
#include "tests/unit/attention_call.h"

namespace tilewise {
namespace {

using testing::AttentionCall;
using testing::CallShape;
using ::testing::ElementsAre;

// New rows 100 + i in K's dimension 0 and V's dimension `i`.
struct NewRows {
  NewRows(AttentionCall* call, std::int64_t rows) {
    const std::int64_t dim = call->a.head_dim;
    const std::int64_t v_dim = call->a.v_head_dim;
    k.assign(static_cast<std::size_t>(rows * dim), 0.0f);
    v.assign(static_cast<std::size_t>(rows * v_dim), 0.0f);
    for (std::int64_t i = 0; i < rows; ++i) {
      k[static_cast<std::size_t>(i * dim)] = 100.0f + static_cast<float>(i);
      v[static_cast<std::size_t>(i * v_dim + 8 + i)] = 1.0f;
    }
    call->a.append.k = k.data();
    call->a.append.v = v.data();
    call->a.append.k_stride = {call->a.q_len * dim, dim, dim};
    call->a.append.v_stride = {call->a.q_len * v_dim, v_dim, v_dim};
  }
  std::vector<float> k, v;
};

std::vector<float> first_dims(AttentionCall* call, std::int64_t rows) {
  std::vector<float> values;
  for (std::int64_t j = 0; j < rows; ++j) values.push_back(call->k_at(0, j, 0, 0));
  return values;
}

CallShape shape(std::int64_t q_len, std::int64_t keys) {
  CallShape s;
  s.q_len = q_len;
  s.keys = keys;
  return s;
}

TEST(Append, RowsGoToTheEndOfTheirRequestBeforeTheyAreAttended) {
  AttentionCall call(shape(2, 6));
  call.a.kv.kv_len = 4;
  const NewRows rows(&call, 2);
  call.a.rule.causal = true;
  call.run();
  EXPECT_THAT(first_dims(&call, 6), ElementsAre(0, 0, 100, 101, 0, 0));
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1, 8));
  EXPECT_THAT(call.seen(1), ElementsAre(0, 1, 8, 9));
}

TEST(Append, RaggedRowsComeFromTheirOwnPlaceInTheBatch) {
  CallShape s = shape(1, 4);
  s.batch = 2;
  AttentionCall call(s);
  const std::vector<std::int32_t> indptr{0, 0, 2};
  const std::vector<std::int32_t> lens{1, 3};
  call.a.q_indptr = indptr.data();
  call.a.kv.lengths = core::KvLengths::kPerRequest;
  call.a.kv.kv_lens = lens.data();
  call.a.max_q_len = 2;
  const NewRows rows(&call, 2);
  call.a.append.k_stride.batch = call.a.append.v_stride.batch = 0;
  cpu::append_new_rows(call.a, {testing::thread_per_task, nullptr, 3});
  EXPECT_THAT(first_dims(&call, 8), ElementsAre(0, 0, 0, 0, 0, 100, 101, 0));
}

TEST(Append, MissingSlotsAreAttendedFromTheNewRowsButNotWritten) {
  AttentionCall call(shape(3, 6));
  call.use_pages(1, {0, 1, -1, 77, 4}, 5);
  call.a.kv.kv_len = 5;
  const NewRows rows(&call, 3);
  call.a.rule.causal = true;
  const std::vector<float> before = call.v;
  call.run();
  EXPECT_THAT(first_dims(&call, 6), ElementsAre(0, 0, 0, 0, 102, 0));
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1, 8));
  EXPECT_THAT(call.seen(2), ElementsAre(0, 1, 8, 9, 10));
  EXPECT_EQ(call.v[3 * 16], before[3 * 16]);
}

TEST(Append, HolesBeforeTheNewRowsStayInvisible) {
  AttentionCall call(shape(1, 8));
  call.use_pages(4, {0, -1}, 2);
  call.a.kv.kv_len = 7;
  const NewRows rows(&call, 1);
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1, 2, 3, 8));
}

TEST(Append, RowsAreRoundedToTheCacheTypeEvenWhereTheyAreNotWritten) {
  for (const std::int32_t slot : {0, -1}) {
    AttentionCall call(shape(1, 1));
    call.use_pages(1, {slot}, 1);
    std::vector<std::uint16_t> k(8), v(16);
    call.a.kv.k = k.data();
    call.a.kv.v = v.data();
    call.a.kv_dtype = core::DType::kBf16;
    NewRows rows(&call, 1);
    rows.v[3] = 1.0f + 0x1p-8f + 0x1p-12f;  // above the tie: up
    rows.v[4] = 1.0f + 0x1p-8f;             // on the tie: to even
    call.run();
    EXPECT_EQ(call.o_at(0, 0, 3), 1.0f + 0x1p-7f) << slot;
    EXPECT_EQ(call.o_at(0, 0, 4), 1.0f) << slot;
    EXPECT_EQ(v[3], slot == 0 ? 0x3F81 : 0) << slot;
  }
}

TEST(Append, RowsThatExceedTheKeysHaveNoPlace) {
  AttentionCall call(shape(3, 2));
  const NewRows rows(&call, 3);
  call.run();
  EXPECT_THAT(first_dims(&call, 2), ElementsAre(101, 102));
}

}  // namespace
}  // namespace tilewise
