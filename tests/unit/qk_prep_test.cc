// The arithmetic of tw_qk_prep, bit by bit against an emulation, for every family of norm,
// rounding, pairs and V mode; and that no family passes for another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/unit/prep_support.h"

namespace tilewise::testing {
namespace {

using core::DType;
using core::Norm;
using core::NormRounding;
using core::PairStyle;
using core::VMode;

struct Family {
  Norm norm;
  NormRounding rounding;
  PairStyle pairs;
};

std::vector<Family> families() {
  std::vector<Family> all;
  for (const Norm norm : {Norm::kNone, Norm::kWeight, Norm::kOnePlusWeight}) {
    for (const NormRounding rounding : {NormRounding::kOnce, NormRounding::kTwoStep}) {
      for (const PairStyle pairs : {PairStyle::kHalves, PairStyle::kInterleaved}) {
        all.push_back({norm, rounding, pairs});
      }
    }
  }
  return all;
}

core::QkPrep with_family(core::QkPrep p, const Family& family) {
  p.norm = family.norm;
  p.rounding = family.rounding;
  p.rope.pairs = family.pairs;
  return p;
}

// Rows are at positions 0, 1, ... unless the call says otherwise.
using PositionOf = std::function<std::int64_t(std::int64_t row)>;

// Whether q_out and k_out hold what `p` (perhaps of another family) says.
bool matches(const PrepCall& call, const core::QkPrep& p, const PositionOf& position_of) {
  const auto same = [&](const Elements& in, const Elements& out, std::int64_t heads,
                        const Elements& weight) {
    for (std::int64_t row = 0; row < call.rows; ++row) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const Head wanted =
            emulated_head(p, head_of(in, heads, p.head_dim, row, h), weight, position_of(row));
        if (head_of(out, heads, p.head_dim, row, h) != wanted) return false;
      }
    }
    return true;
  };
  return same(call.q, call.q_out, p.q_heads, call.q_weight) &&
         same(call.k, call.k_out, p.kv_heads, call.k_weight);
}

bool matches(const PrepCall& call, const core::QkPrep& p) {
  return matches(call, p, [&](std::int64_t row) { return row % call.shape.q_len; });
}

class QkPrepOfType : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, QkPrepOfType, ::testing::ValuesIn(kAllTypes), type_of);

TEST_P(QkPrepOfType, EqualsItsOwnFamilysEmulationAndNoOther) {
  PrepShape shape;
  shape.type = GetParam();
  shape.q_len = 9;
  shape.head_dim = 72;  // a tail after whole vectors and after 16 lanes
  shape.rotary_dim = 72;
  for (const Family& family : families()) {
    PrepCall call(shape);
    call.p = with_family(call.p, family);
    call.run();
    EXPECT_TRUE(matches(call, call.p));
    int others = 0;
    for (const Family& other : families()) others += matches(call, with_family(call.p, other));
    // In fp32 there is nothing to round between the steps, so both roundings are one.
    EXPECT_EQ(others, shape.type == DType::kFp32 ? 2 : 1);
    EXPECT_TRUE(call.q_out.guards_intact() && call.k_out.guards_intact());
  }
}

TEST_P(QkPrepOfType, RunsEveryHeadDim) {
  for (std::int32_t dim = 8; dim <= 512; dim += 8) {
    PrepShape shape;
    shape.type = GetParam();
    shape.q_len = 2;
    shape.head_dim = dim;
    shape.rotary_dim = dim % 16 == 0 ? dim : dim / 2;
    PrepCall call(shape, static_cast<std::uint64_t>(dim));
    call.run();
    EXPECT_TRUE(matches(call, call.p)) << dim;
  }
}

TEST_P(QkPrepOfType, MakesVInItsModeAndNoOther) {
  const VMode modes[] = {VMode::kCopy, VMode::kRms, VMode::kFromRawK};
  for (const VMode mode : modes) {
    PrepShape shape;
    shape.type = GetParam();
    PrepCall call(shape);
    call.p.v_mode = mode;
    if (mode == VMode::kFromRawK) call.p.v.data = nullptr;
    call.run(2);
    for (const VMode other : modes) {
      core::QkPrep p = call.p;
      p.v_mode = other;
      bool same = true;
      for (std::int64_t row = 0; row < call.rows; ++row) {
        for (std::int64_t h = 0; h < p.kv_heads; ++h) {
          const Head wanted = emulated_v(p, head_of(call.k, p.kv_heads, p.head_dim, row, h),
                                         head_of(call.v, p.kv_heads, p.head_dim, row, h));
          same = same && head_of(call.v_out, p.kv_heads, p.head_dim, row, h) == wanted;
        }
      }
      EXPECT_EQ(same, other == mode);
    }
    EXPECT_TRUE(matches(call, call.p));
  }
}

TEST_P(QkPrepOfType, LeavesTheTailOfAPartialRotationNormedOnly) {
  PrepShape shape;
  shape.type = GetParam();
  shape.rotary_dim = 32;
  for (const PairStyle pairs : {PairStyle::kHalves, PairStyle::kInterleaved}) {
    PrepCall call(shape);
    call.p.rope.pairs = pairs;
    call.run();
    EXPECT_TRUE(matches(call, call.p));
    core::QkPrep unrotated = call.p;
    unrotated.rope.cos = nullptr;
    for (std::int64_t row = 1; row < call.rows; ++row) {
      const Head out = head_of(call.q_out, shape.q_heads, shape.head_dim, row, 1);
      const Head normed = emulated_head(
          unrotated, head_of(call.q, shape.q_heads, shape.head_dim, row, 1), call.q_weight, 0);
      EXPECT_TRUE(std::equal(out.begin() + 32, out.end(), normed.begin() + 32));
      EXPECT_FALSE(std::equal(out.begin(), out.begin() + 32, normed.begin()));
    }
  }
}

TEST_P(QkPrepOfType, PassesThroughWithoutNormAndTable) {
  PrepShape shape;
  shape.type = GetParam();
  PrepCall call(shape);
  call.p.norm = Norm::kNone;
  call.p.rope.cos = nullptr;
  call.p.q_weight = call.p.k_weight = nullptr;
  call.run();
  EXPECT_EQ(call.q_out, call.q);
  EXPECT_EQ(call.k_out, call.k);
  EXPECT_EQ(call.v_out, call.v);
}

// A one-hot row shows which slot is the partner of slot 0, and nothing else may change.
TEST_P(QkPrepOfType, B14_PairsSlotZeroWithItsPartner) {
  PrepShape shape;
  shape.type = GetParam();
  shape.q_len = 1;
  for (const PairStyle pairs : {PairStyle::kHalves, PairStyle::kInterleaved}) {
    PrepCall call(shape);
    call.q.fill(0.0f);
    call.q.set(0, 1.0f);
    const std::int32_t position = 3;
    call.p.norm = Norm::kNone;
    call.p.rope.pairs = pairs;
    call.p.start = &position;
    call.run();
    const std::int64_t partner = pairs == PairStyle::kHalves ? 32 : 1;
    for (std::int64_t d = 0; d < 64; ++d) {
      const double wanted = d == 0 ? std::cos(3.0) : d == partner ? std::sin(3.0) : 0.0;
      EXPECT_EQ(call.q_out[d], core::round_to(shape.type, static_cast<float>(wanted))) << d;
    }
  }
}

TEST_P(QkPrepOfType, WorksInPlace) {
  PrepShape shape;
  shape.type = GetParam();
  shape.q_len = 33;
  PrepCall apart(shape);
  PrepCall in_place(shape);
  for (PrepCall* call : {&apart, &in_place}) {
    call->p.v_mode = VMode::kFromRawK;
    call->p.v.data = nullptr;
  }
  in_place.p.q_out.data = in_place.q.data();
  in_place.p.k_out.data = in_place.k.data();
  in_place.p.v_out.data = in_place.v.data();
  apart.run();
  in_place.run(3);
  EXPECT_EQ(in_place.q, apart.q_out);
  EXPECT_EQ(in_place.k, apart.k_out);
  EXPECT_EQ(in_place.v, apart.v_out);
}

TEST_P(QkPrepOfType, GivesTheSameBytesForAnyThreadsAndNeighbours) {
  PrepShape shape;
  shape.type = GetParam();
  shape.batch = 5;
  shape.q_len = 13;
  PrepCall batch(shape);
  batch.run();
  PrepCall threaded(shape);
  threaded.run(7);
  EXPECT_EQ(threaded.q_out, batch.q_out);
  EXPECT_EQ(threaded.k_out, batch.k_out);
  // Request 3 alone.
  PrepCall alone(shape);
  alone.p.tokens = dense_rows(1, shape.q_len);
  const std::int64_t skipped = 3 * shape.q_len * shape.q_heads * shape.head_dim;
  alone.p.q.data = static_cast<const char*>(alone.p.q.data) + skipped * core::size_of(shape.type);
  alone.run();
  for (std::int64_t i = 0; i < shape.q_len * shape.q_heads * shape.head_dim; ++i) {
    ASSERT_EQ(alone.q_out[i], batch.q_out[skipped + i]);
  }
}

TEST_P(QkPrepOfType, StaysNearTheFloat64Oracle) {
  PrepShape shape;
  shape.type = GetParam();
  for (const Family& family : families()) {
    PrepCall call(shape);
    PrepCall oracle(shape);
    call.p = with_family(call.p, family);
    oracle.p = with_family(oracle.p, family);
    call.run();
    cpu::reference_qk_prep(oracle.p);
    // A float sum may round the other way once at each of up to four roundings of values below 8.
    const float ulp = shape.type == DType::kBf16   ? 0x1p-5f
                      : shape.type == DType::kFp16 ? 0x1p-8f
                                                   : 0x1p-21f;
    for (std::int64_t i = 0; i < call.q_out.count(); ++i) {
      ASSERT_NEAR(call.q_out[i], oracle.q_out[i], 4 * ulp);
    }
  }
}

TEST(QkPrep, ReadsTablesWithStridesAndOfBf16) {
  PrepShape shape;
  shape.table_type = DType::kBf16;
  PrepCall plain(shape);
  PrepCall strided(shape);
  const Angles wide(DType::kBf16, shape.table_rows, shape.rotary_dim, 10000.0, 3);
  strided.p.rope = wide.table;
  plain.run();
  strided.run();
  EXPECT_TRUE(matches(plain, plain.p));
  EXPECT_EQ(strided.q_out, plain.q_out);
  // Rounding the table does show.
  shape.table_type = DType::kFp32;
  const PrepCall exact(shape);
  EXPECT_FALSE(matches(plain, exact.p));
}

TEST(QkPrep, ReadsInputsBackwardsAndWritesOutputsFarApart) {
  const PrepShape shape;
  PrepCall plain(shape);
  plain.run();
  PrepCall call(shape);
  const std::int64_t dim = shape.head_dim;
  // Heads from last to first; every output row of heads stands 7 elements further.
  Elements out(shape.type, call.rows * (shape.q_heads * dim + 7));
  call.p.q.data = static_cast<const char*>(call.p.q.data) + (shape.q_heads - 1) * dim * 2;
  call.p.q.stride.head = -dim;
  call.p.q_out = {out.data(), {0, shape.q_heads * dim + 7, dim}};
  call.run();
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for (std::int64_t h = 0; h < shape.q_heads; ++h) {
      for (std::int64_t d = 0; d < dim; ++d) {
        ASSERT_EQ(out[row * (shape.q_heads * dim + 7) + h * dim + d],
                  plain.q_out[(row * shape.q_heads + shape.q_heads - 1 - h) * dim + d]);
      }
    }
    const std::int64_t gap = row * (shape.q_heads * dim + 7) + shape.q_heads * dim;
    EXPECT_TRUE(out.untouched(gap, gap + 7));
  }
  EXPECT_TRUE(out.guards_intact());
}

TEST(QkPrep, B37_TreatsAllHeadsAndTokenCountsAlike) {
  PrepShape shape;
  shape.q_len = 512;
  shape.q_heads = 16;
  shape.kv_heads = 4;
  shape.head_dim = 128;
  shape.rotary_dim = 64;
  shape.table_rows = 512;
  PrepCall all(shape, 37);
  all.run(2);
  EXPECT_TRUE(matches(all, all.p));
  EXPECT_EQ(all.v_out, all.v);
  for (const std::int64_t tokens : {1, 3}) {
    PrepCall few(shape, 37);
    few.p.tokens = dense_rows(1, tokens);
    few.run();
    for (std::int64_t i = 0; i < tokens * shape.q_heads * shape.head_dim; ++i) {
      ASSERT_EQ(few.q_out[i], all.q_out[i]);
    }
  }
}

TEST(QkPrep, B97_ReadsWeightsAsTheTypeThatTheyAre) {
  for (const DType type : kAllTypes) {
    for (const DType weight_type : kAllTypes) {
      PrepShape shape;
      shape.type = type;
      shape.weight_type = weight_type;
      PrepCall call(shape, 97);
      call.run();
      EXPECT_TRUE(matches(call, call.p));
      for (std::int64_t i = 0; i < call.q_out.count(); ++i)
        ASSERT_TRUE(std::isfinite(call.q_out[i]));
    }
  }
}

TEST(QkPrep, B98_AddsOneToTheWeightInFloat) {
  PrepShape shape;
  shape.weight_type = DType::kBf16;
  PrepCall call(shape, 98);
  call.p.norm = Norm::kOnePlusWeight;
  call.p.rope.cos = nullptr;
  for (std::int64_t d = 0; d < 64; ++d) call.q_weight.set(d, d % 2 == 0 ? 0.00390625f : 15.8125f);
  call.run();
  const Head x = head_of(call.q, 3, 64, 0, 0);
  double mean = 0;
  for (const float value : x) mean += double{value} * double{value} / 64.0;
  for (std::size_t d = 0; d < 64; ++d) {
    const double w = d % 2 == 0 ? 1.00390625 : 16.8125;
    const double wanted = double{x[d]} / std::sqrt(mean + 1e-6) * w;
    const double half_ulp = std::ldexp(1.0, std::ilogb(wanted) - 8);
    EXPECT_NEAR(double{call.q_out[static_cast<std::int64_t>(d)]}, wanted, half_ulp * 1.001) << d;
  }
}

TEST(QkPrep, B104_KeepsEpsilonAsGiven) {
  for (const float eps : {1e-6f, 1e-5f, 0.0f}) {
    PrepShape shape;
    shape.head_dim = 256;
    shape.q_len = 1;
    PrepCall call(shape, 104);
    for (std::int64_t d = 0; d < 256; ++d) {
      call.q.set(d, 0.014f * normal(104, 0, d));
      call.q.set(256 + d, 0.0f);
      call.q.set(512 + d, 1e-20f);
    }
    call.p.eps = eps;
    call.p.rope.cos = nullptr;
    call.run();
    double mean = 0;
    for (std::int64_t d = 0; d < 256; ++d) mean += double{call.q[d]} * double{call.q[d]} / 256.0;
    for (std::int64_t d = 0; d < 256; ++d) {
      const double w = double{call.q_weight[d]};
      const double wanted = double{call.q[d]} / std::sqrt(mean + double{eps}) * w;
      EXPECT_NEAR(double{call.q_out[d]}, wanted, std::fabs(wanted) * 0x1p-8);
      if (eps > 0) {
        EXPECT_EQ(call.q_out[256 + d], 0.0f);
        EXPECT_NEAR(double{call.q_out[512 + d]}, 1e-20 / std::sqrt(double{eps}) * w, 1e-19);
      } else {
        EXPECT_TRUE(std::isnan(call.q_out[256 + d]));  // 0 / 0: the header says so
      }
    }
  }
}

TEST(QkPrep, TakesSeventyThousandTokens) {
  PrepShape shape;
  shape.q_len = 70000;
  shape.q_heads = shape.kv_heads = 1;
  shape.head_dim = shape.rotary_dim = 8;
  shape.table_rows = 70000;
  PrepCall call(shape);
  call.run(2);
  EXPECT_TRUE(matches(call, call.p));
}

}  // namespace
}  // namespace tilewise::testing
