// The float64 oracle of attention against closed forms: answers that need no second implementation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/reference_math.h"
#include "tests/unit/attention_call.h"

namespace tilewise {
namespace {

using testing::AttentionCall;
using testing::CallShape;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

CallShape shape(std::int64_t q_len, std::int64_t keys) {
  CallShape s;
  s.q_len = q_len;
  s.keys = keys;
  return s;
}

TEST(Reference, OneKeyGivesItsValueRowAndItsLogit) {
  AttentionCall call(shape(1, 1));
  call.q_at(0, 0, 0) = 3.0f;
  call.k_at(0, 0, 0, 0) = 0.5f;
  for (std::int64_t d = 0; d < 16; ++d) call.v_at(0, 0, 0, d) = 0.1f * static_cast<float>(d) - 0.7f;
  call.a.scale = 0.25f;
  call.run();
  for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(call.o_at(0, 0, d), call.v_at(0, 0, 0, d));
  EXPECT_EQ(call.lse_at(0, 0), 0.375f);
}

TEST(Reference, EqualKeysGiveTheMeanOfTheValues) {
  AttentionCall call(shape(1, 4));
  for (std::int64_t j = 0; j < 4; ++j) {
    for (std::int64_t d = 0; d < 8; ++d) call.k_at(0, j, 0, d) = 0.25f;
    call.v_at(0, j, 0, 9) = static_cast<float>(j * j);
  }
  for (std::int64_t d = 0; d < 8; ++d) call.q_at(0, 0, d) = 1.0f;
  call.run();
  EXPECT_EQ(call.o_at(0, 0, 9), 3.5f);
  EXPECT_EQ(call.lse_at(0, 0), static_cast<float>(2.0 + std::log(4.0)));
}

TEST(Reference, ZeroQueriesCountTheirKeysExactly) {
  for (const std::int64_t keys : {1, 2, 3, 63, 64, 65, 127, 1009, 4097}) {
    AttentionCall call(shape(1, keys));
    call.run();
    EXPECT_EQ(call.lse_at(0, 0), static_cast<float>(std::log(static_cast<double>(keys)))) << keys;
    EXPECT_EQ(call.o_at(0, 0, 0), static_cast<float>(1.0 / static_cast<double>(keys))) << keys;
  }
}

TEST(Reference, OneHugeLogitGivesThatValueRow) {
  AttentionCall call(shape(1, 5));
  call.q_at(0, 0, 3) = 1.0f;
  for (std::int64_t j = 0; j < 5; ++j) call.k_at(0, j, 0, 3) = j == 2 ? 2.0e4f : -2.0e4f;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(2));
  EXPECT_EQ(call.o_at(0, 0, 2), 1.0f);
  EXPECT_EQ(call.lse_at(0, 0), 2.0e4f);
}

TEST(Reference, TwoKeysByHand) {
  AttentionCall call(shape(1, 2));
  call.q_at(0, 0, 0) = 1.0f;
  call.k_at(0, 1, 0, 0) = static_cast<float>(std::log(3.0));
  call.run();
  EXPECT_NEAR(call.o_at(0, 0, 0), 0.25f, 1e-7f);
  EXPECT_NEAR(call.o_at(0, 0, 1), 0.75f, 1e-7f);
  EXPECT_NEAR(call.lse_at(0, 0), std::log(4.0), 1e-7);
}

TEST(Reference, SoftCapByHand) {
  AttentionCall call(shape(1, 1));
  call.q_at(0, 0, 0) = 1.0f;
  call.k_at(0, 0, 0, 0) = static_cast<float>(std::atanh(0.5) * 3.0 / 2.0);
  call.a.scale = 2.0f;
  call.a.softcap = 3.0f;
  call.run();
  EXPECT_NEAR(call.lse_at(0, 0), 1.5f, 1e-6f);
}

TEST(Reference, AlibiHalvesTheWeightPerStepAndComesAfterTheCap) {
  AttentionCall call(shape(1, 3));
  const float slope = static_cast<float>(std::log(2.0));
  call.a.alibi = &slope;
  call.a.softcap = 1e-3f;  // would flatten the slopes if it came last
  const std::int32_t start = 1;
  call.a.q_start = &start;
  call.run();
  EXPECT_NEAR(call.o_at(0, 0, 0), 0.25f, 1e-6f);
  EXPECT_NEAR(call.o_at(0, 0, 1), 0.5f, 1e-6f);
  EXPECT_NEAR(call.o_at(0, 0, 2), 0.25f, 1e-6f);
  EXPECT_NEAR(call.lse_at(0, 0), std::log(2.0), 1e-6);
}

TEST(Reference, AlibiSlopesMayDifferByHeadAndRequest) {
  CallShape s = shape(1, 2);
  s.batch = 2;
  s.q_heads = 2;
  AttentionCall call(s);
  const float ln2 = static_cast<float>(std::log(2.0));
  const std::vector<float> slopes{0.0f, ln2, 2 * ln2, 3 * ln2};
  call.a.alibi = slopes.data();
  call.a.alibi_batch_stride = 2;
  call.run();
  for (std::int64_t i = 0; i < 4; ++i) {
    const double far = std::exp2(-static_cast<double>(i));
    EXPECT_NEAR(call.o_at(i / 2, i % 2, 0), far / (1 + far), 1e-6) << i;
  }
}

TEST(Reference, SinkEntersTheDenominatorOnceAndNotTheLse) {
  AttentionCall call(shape(1, 2));
  const float sink = static_cast<float>(std::log(6.0));
  call.a.sinks = &sink;
  call.a.scale = 0.5f;
  call.a.softcap = 0.1f;  // a sink is neither scaled nor capped
  call.run();
  EXPECT_NEAR(call.o_at(0, 0, 0), 1.0f / 8, 1e-6f);
  EXPECT_NEAR(call.o_at(0, 0, 1), 1.0f / 8, 1e-6f);
  EXPECT_EQ(call.lse_at(0, 0), static_cast<float>(std::log(2.0)));
}

TEST(Reference, HugeSinkSilencesTheRow) {
  AttentionCall call(shape(1, 2));
  const float sink = 1e4f;
  call.a.sinks = &sink;
  call.run();
  EXPECT_EQ(call.o_at(0, 0, 0), 0.0f);
  EXPECT_EQ(call.lse_at(0, 0), static_cast<float>(std::log(2.0)));
}

TEST(Reference, CausalRowsEndAtTheLastKey) {
  AttentionCall call(shape(3, 4));
  call.a.rule.causal = true;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1));
  EXPECT_THAT(call.seen(1), ElementsAre(0, 1, 2));
  EXPECT_THAT(call.seen(2), ElementsAre(0, 1, 2, 3));
}

TEST(Reference, RowsBeforeTheFirstKeySeeNothing) {
  AttentionCall call(shape(4, 2));
  call.a.rule.causal = true;
  const std::vector<float> sinks{1.0f};
  call.a.sinks = sinks.data();
  call.run();
  for (std::int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(call.lse_at(row, 0), -kInfinity);
    for (std::int64_t d = 0; d < 16; ++d) EXPECT_EQ(call.o_at(row, 0, d), 0.0f);
  }
  EXPECT_THAT(call.seen(2), ElementsAre(0));
  EXPECT_THAT(call.seen(3), ElementsAre(0, 1));
}

TEST(Reference, WindowsAreInclusiveDistances) {
  AttentionCall call(shape(1, 9));
  const std::int32_t start = 4;
  call.a.q_start = &start;
  call.a.rule.has_left = true;
  call.a.rule.window_left = 2;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(2, 3, 4, 5, 6, 7, 8));
  call.a.rule.has_right = true;
  call.a.rule.window_right = 1;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(2, 3, 4, 5));
  call.a.rule.causal = true;
  call.a.rule.window_left = 0;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(4));
}

TEST(Reference, PositionsReplaceTheStart) {
  AttentionCall call(shape(3, 6));
  const std::int32_t start = 0;
  const std::vector<std::int32_t> positions{4, -1, 1};
  call.a.q_start = &start;
  call.a.q_positions = positions.data();
  call.a.rule.causal = true;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(call.seen(1), IsEmpty());
  EXPECT_THAT(call.seen(2), ElementsAre(0, 1));
}

TEST(Reference, MaskColumnsStartAtTheFirstKey) {
  AttentionCall call(shape(2, 6));
  const std::vector<std::uint8_t> mask{1, 0, 1, 0, 7, 0};
  const std::int32_t first_key = 2;
  call.a.mask.data = mask.data();
  call.a.mask.width = 3;
  call.a.mask.row_stride = 3;
  call.a.mask.first_key = &first_key;
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1, 2, 4));  // key 5 lies past the mask's end
  EXPECT_THAT(call.seen(1), ElementsAre(0, 1, 3));
}

TEST(Reference, GroupsOfQueryHeadsShareAKvHead) {
  CallShape s = shape(1, 2);
  s.q_heads = 4;
  s.kv_heads = 2;
  AttentionCall call(s);
  call.v_at(0, 0, 1, 8) = 6.0f;
  call.run();
  for (std::int64_t h = 0; h < 4; ++h) EXPECT_EQ(call.o_at(0, h, 8), h < 2 ? 0.0f : 3.0f);
}

TEST(Reference, HolesReleasedPagesAndBadIdsAreInvisible) {
  AttentionCall call(shape(1, 12));
  call.use_pages(2, {3, -1, 99, 0, -7}, 5);
  const std::int32_t first_page = 1;  // keys 0 and 1 are released
  call.a.kv.first_page = &first_page;
  call.run();
  // Entries are pages 1..5: keys 2,3 in page 3 (rows 6,7), keys 8,9 in page 0 (rows 0,1).
  EXPECT_THAT(call.seen(0), ElementsAre(0, 1, 6, 7));
  EXPECT_EQ(call.lse_at(0, 0), static_cast<float>(std::log(4.0)));
}

TEST(Reference, WhatNoRowSeesIsNeverRead) {
  AttentionCall call(shape(1, 8));
  const std::int32_t start = 4;
  call.a.q_start = &start;
  call.a.rule.causal = call.a.rule.has_left = true;
  call.a.rule.window_left = 2;
  const std::vector<std::uint8_t> mask{1, 1, 1, 0, 1, 1, 1, 1};
  call.a.mask.data = mask.data();
  call.a.mask.width = 8;
  for (const std::int64_t hidden : {0, 1, 3, 5, 6, 7}) {
    for (std::int64_t d = 0; d < 8; ++d) call.k_at(0, hidden, 0, d) = kNaN;
    for (std::int64_t d = 0; d < 16; ++d) call.v_at(0, hidden, 0, d) = kNaN;
  }
  call.run();
  EXPECT_THAT(call.seen(0), ElementsAre(2, 4));
  EXPECT_EQ(call.o_at(0, 0, 2), 0.5f);
}

TEST(Reference, NaNThatARowSeesReachesItsOutput) {
  AttentionCall call(shape(1, 3));
  call.q_at(0, 0, 0) = 1.0f;
  call.k_at(0, 0, 0, 0) = kNaN;
  call.run();
  EXPECT_TRUE(std::isnan(call.o_at(0, 0, 2)));
  EXPECT_TRUE(std::isnan(call.lse_at(0, 0)));
}

TEST(Reference, AnyNumberOfThreadsGivesTheSameBytes) {
  CallShape s = shape(7, 33);
  s.batch = 3;
  s.q_heads = 6;
  s.kv_heads = 2;
  AttentionCall one(s);
  std::uint32_t state = 1;
  for (std::vector<float>* values : {&one.q, &one.k, &one.v}) {
    for (float& x : *values) {
      state = state * 1664525u + 1013904223u;
      x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
  }
  one.a.rule.causal = true;
  AttentionCall many(s);
  many.q = one.q;
  std::copy(one.k.begin(), one.k.end(), many.k.begin());
  std::copy(one.v.begin(), one.v.end(), many.v.begin());
  many.a.rule.causal = true;
  one.run(1);
  many.run(5);
  EXPECT_EQ(std::memcmp(one.o.data(), many.o.data(), one.o.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(one.lse.data(), many.lse.data(), one.lse.size() * sizeof(float)), 0);
}

TEST(ReferenceMath, DoublesAreRoundedOnce) {
  // Just above the tie between bf16 1.0 and 1.0078125: a first rounding to float would land on the
  // tie.
  const double above = 1.00390625 + 0x1p-40;
  EXPECT_EQ(cpu::round_double(core::DType::kBf16, above), 1.0078125);
  EXPECT_EQ(cpu::round_double(core::DType::kBf16, 1.00390625), 1.0);
  EXPECT_EQ(cpu::round_double(core::DType::kBf16, 1.00390625 - 0x1p-40), 1.0);
  EXPECT_EQ(cpu::round_double(core::DType::kFp16, -(1.0 + 0x1p-11 + 0x1p-45)), -(1.0 + 0x1p-10));
  EXPECT_EQ(cpu::round_double(core::DType::kFp16, 65520.0),
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(cpu::round_double(core::DType::kFp16, 65520.0 - 0x1p-36), 65504.0);
  EXPECT_EQ(cpu::round_double(core::DType::kBf16, 1e300), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace tilewise
