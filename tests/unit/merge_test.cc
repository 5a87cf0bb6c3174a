// tw_merge_states: empty states, single states bit for bit, folds against float64, sinks, in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/ops_support.h"

namespace tilewise::testing {
namespace {

using core::DType;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct MergeCall {
  MergeCall(DType type, std::int32_t states, std::int64_t rows, std::int32_t heads,
            std::int32_t dim)
      : o(type, std::max(states, 1) * rows * heads * dim),
        lse(DType::kFp32, std::max(states, 1) * rows * heads),
        out(type, rows * heads * dim),
        out_lse(DType::kFp32, rows * heads) {
    o.fill_normal(7, 2);
    for (std::int64_t i = 3; i < o.count(); i += 16) o.set(i, -0.0f);  // sums would lose the sign
    lse.fill_normal(7, 3, 3.0f);
    p.dtype = p.out_dtype = type;
    p.states = states;
    p.heads = heads;
    p.v_head_dim = dim;
    p.rows = rows;
    p.o = o.data();
    p.o_state_stride = rows * heads * dim;
    p.o_row_stride = p.out_row_stride = heads * dim;
    p.o_head_stride = p.out_head_stride = dim;
    p.lse = static_cast<const float*>(lse.data());
    p.lse_state_stride = rows * heads;
    p.lse_row_stride = p.out_lse_row_stride = heads;
    p.lse_head_stride = p.out_lse_head_stride = 1;
    p.out = out.data();
    p.out_lse = static_cast<float*>(out_lse.data());
  }
  MergeCall(const MergeCall&) = delete;
  MergeCall& operator=(const MergeCall&) = delete;

  std::int64_t lse_at(std::int64_t state, std::int64_t row, std::int64_t head) const {
    return state * p.lse_state_stride + row * p.heads + head;
  }
  std::int64_t o_at(std::int64_t state, std::int64_t row, std::int64_t head) const {
    return lse_at(state, row, head) * p.v_head_dim;
  }
  // No visible keys, and whatever is left in its rows.
  void make_empty(std::int64_t state, std::int64_t row, float garbage) {
    for (std::int32_t h = 0; h < p.heads; ++h) {
      lse.set(lse_at(state, row, h), -kInf);
      for (std::int64_t d = 0; d < p.v_head_dim; ++d) o.set(o_at(state, row, h) + d, garbage);
    }
  }
  void run(std::int32_t workers = 1) { cpu::run_merge_states(p, threads(workers)); }

  bool same_as_state(std::int64_t state, std::int64_t row) const {
    for (std::int32_t h = 0; h < p.heads; ++h) {
      if (out_lse[row * p.heads + h] != lse[lse_at(state, row, h)]) return false;
      for (std::int64_t d = 0; d < p.v_head_dim; ++d) {
        const float merged = out[o_at(0, row, h) + d];
        const float wanted = o[o_at(state, row, h) + d];
        if (core::bits_of(merged) != core::bits_of(wanted)) return false;
      }
    }
    return true;
  }
  bool is_empty(std::int64_t row) const {
    for (std::int32_t h = 0; h < p.heads; ++h) {
      if (out_lse[row * p.heads + h] != -kInf) return false;
      for (std::int64_t d = 0; d < p.v_head_dim; ++d) {
        if (out[o_at(0, row, h) + d] != 0.0f) return false;
      }
    }
    return true;
  }

  Elements o, lse, out, out_lse;
  core::MergeStates p{};
};

TEST(Merge, B07_TakesEmptyStatesForNothing) {
  for (const DType type : kAllTypes) {
    for (const float garbage : {1.0f, std::nanf("")}) {
      for (const bool in_place : {false, true}) {
        MergeCall call(type, 2, 3, 2, 64);
        MergeCall before(type, 2, 3, 2, 64);
        for (MergeCall* c : {&call, &before}) {
          c->make_empty(0, 0, garbage);
          c->make_empty(1, 0, garbage);
          c->make_empty(0, 1, garbage);
          c->make_empty(1, 2, garbage);
        }
        if (in_place) {
          call.p.out = call.o.data();
          call.p.out_lse = static_cast<float*>(call.lse.data());
        }
        call.run(2);
        for (std::int64_t i = 0; i < call.out.count(); ++i) {
          before.out.set(i, in_place ? call.o[i] : call.out[i]);
        }
        for (std::int64_t i = 0; i < 6; ++i) {
          before.out_lse.set(i, in_place ? call.lse[i] : call.out_lse[i]);
        }
        EXPECT_TRUE(before.is_empty(0));
        EXPECT_TRUE(before.same_as_state(1, 1));
        EXPECT_TRUE(before.same_as_state(0, 2));
      }
    }
  }
}

TEST(Merge, B07_MergesAnyNumberOfStates) {
  for (const std::int32_t states : {0, 1, 2, 5}) {
    MergeCall call(DType::kBf16, states, 3, 2, 64);
    MergeCall oracle(DType::kBf16, states, 3, 2, 64);
    call.run();
    cpu::reference_merge_states(oracle.p);
    for (std::int64_t row = 0; row < 3; ++row) {
      EXPECT_TRUE(states != 0 || call.is_empty(row));
      EXPECT_TRUE(states != 1 || call.same_as_state(0, row));
    }
    for (std::int64_t i = 0; i < call.out.count(); ++i) {
      ASSERT_NEAR(call.out[i], oracle.out[i], 0x1p-7f);
    }
    EXPECT_TRUE(call.out.guards_intact() && call.out_lse.guards_intact());
  }
}

TEST(Merge, B31_GivesNoWeightToAnEmptyPart) {
  // Three requests of two rows; parts of 64, 0 and 0 keys, then of 0, 30 and 0.
  MergeCall call(DType::kFp32, 2, 6, 4, 128);
  for (const std::int64_t row : {2, 3, 4, 5}) call.make_empty(0, row, std::nanf(""));
  for (const std::int64_t row : {0, 1, 4, 5}) call.make_empty(1, row, std::nanf(""));
  call.run();
  for (const std::int64_t row : {0, 1}) EXPECT_TRUE(call.same_as_state(0, row));
  for (const std::int64_t row : {2, 3}) EXPECT_TRUE(call.same_as_state(1, row));
  for (const std::int64_t row : {4, 5}) EXPECT_TRUE(call.is_empty(row));
}

TEST(Merge, FoldsLikeTheFloat64Oracle) {
  for (const DType type : kAllTypes) {
    for (const bool with_sinks : {false, true}) {
      MergeCall call(type, 7, 40, 3, 520);  // rows longer than a piece of work
      MergeCall oracle(type, 7, 40, 3, 520);
      const std::vector<float> sinks{0.5f, -2.0f, 9.0f};
      for (MergeCall* c : {&call, &oracle}) {
        for (const std::int64_t row : {0, 3, 17}) c->make_empty(row % 7, row, std::nanf(""));
        if (with_sinks) c->p.sinks = sinks.data();
      }
      call.run(2);
      cpu::reference_merge_states(oracle.p);
      const float ulp = type == DType::kBf16 ? 0x1p-7f : type == DType::kFp16 ? 0x1p-10f : 2e-6f;
      for (std::int64_t i = 0; i < call.out.count(); ++i) {
        ASSERT_NEAR(call.out[i], oracle.out[i], ulp);
      }
      for (std::int64_t i = 0; i < call.out_lse.count(); ++i) {
        ASSERT_NEAR(call.out_lse[i], oracle.out_lse[i], 1e-6f);
      }
    }
  }
}

TEST(Merge, LeavesSinksOutOfTheLse) {
  MergeCall plain(DType::kFp32, 3, 2, 2, 64);
  MergeCall sunk(DType::kFp32, 3, 2, 2, 64);
  const std::vector<float> sinks{1.0f, kInf};
  sunk.p.sinks = sinks.data();
  plain.run();
  sunk.run();
  EXPECT_EQ(sunk.out_lse, plain.out_lse);
  EXPECT_NE(sunk.out[0], plain.out[0]);
  EXPECT_EQ(sunk.out[64], 0.0f);  // a sink that takes everything
}

TEST(Merge, LetsASinkOfNothingChangeNothing) {
  MergeCall call(DType::kBf16, 2, 1, 1, 64);
  call.make_empty(0, 0, 3.0f);
  const float sink = -kInf;
  call.p.sinks = &sink;
  call.run();
  EXPECT_TRUE(call.same_as_state(1, 0));
}

TEST(Merge, SurvivesLsesFarApartAndFarOut) {
  MergeCall call(DType::kFp32, 3, 1, 1, 8);
  call.lse.set(0, -3e38f);
  call.lse.set(1, 88000.0f);
  call.lse.set(2, 87990.0f);
  call.run();
  const double w = std::exp(-10.0);
  for (std::int64_t d = 0; d < 8; ++d) {
    const double wanted = (double{call.o[8 + d]} + w * double{call.o[16 + d]}) / (1.0 + w);
    EXPECT_NEAR(double{call.out[d]}, wanted, 1e-6);
  }
  EXPECT_FLOAT_EQ(call.out_lse[0], 88000.0f);
}

TEST(Merge, AveragesEqualStatesExactly) {
  MergeCall call(DType::kFp32, 4, 1, 1, 64);
  for (std::int64_t s = 0; s < 4; ++s) {
    call.lse.set(s, 1.25f);
    for (std::int64_t d = 0; d < 64; ++d) call.o.set(s * 64 + d, call.o[d]);
  }
  call.run();
  for (std::int64_t d = 0; d < 64; ++d) EXPECT_EQ(call.out[d], call.o[d]);
  EXPECT_FLOAT_EQ(call.out_lse[0], 1.25f + std::log(4.0f));
}

TEST(Merge, ShowsANanOfAStateThatCounts) {
  MergeCall call(DType::kFp32, 3, 1, 2, 8);
  call.lse.set(call.lse_at(1, 0, 0), std::nanf(""));
  call.run();
  EXPECT_TRUE(std::isnan(call.out_lse[0]) && std::isnan(call.out[0]));
  EXPECT_FALSE(std::isnan(call.out_lse[1]) || std::isnan(call.out[8]));
}

TEST(Merge, MergesInPlaceOfStateZero) {
  MergeCall apart(DType::kFp16, 3, 50, 4, 528);
  MergeCall in_place(DType::kFp16, 3, 50, 4, 528);
  in_place.p.out = in_place.o.data();
  in_place.p.out_lse = static_cast<float*>(in_place.lse.data());
  apart.run(1);
  in_place.run(5);
  for (std::int64_t i = 0; i < apart.out.count(); ++i) ASSERT_EQ(in_place.o[i], apart.out[i]);
  for (std::int64_t i = 0; i < 200; ++i) ASSERT_EQ(in_place.lse[i], apart.out_lse[i]);
}

TEST(Merge, ConvertsToTheOutputsType) {
  MergeCall call(DType::kFp32, 2, 2, 2, 64);
  MergeCall single(DType::kFp32, 1, 2, 2, 64);
  Elements merged(DType::kBf16, 256);
  Elements alone(DType::kBf16, 256);
  call.run();
  const Elements exact = call.out;
  call.p.out_dtype = single.p.out_dtype = DType::kBf16;
  call.p.out = merged.data();
  single.p.out = alone.data();
  call.run();
  single.run();
  for (std::int64_t i = 0; i < 256; ++i) {
    ASSERT_EQ(merged[i], core::round_to(DType::kBf16, exact[i]));
    ASSERT_EQ(alone[i], core::round_to(DType::kBf16, single.o[i]));
  }
}

}  // namespace
}  // namespace tilewise::testing
