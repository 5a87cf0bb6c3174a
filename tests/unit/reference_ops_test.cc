// The float64 oracles of the small operations: closed forms by hand, and the CPU kernels next to
// them, which the numpy tests check in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/ops.h"
#include "cpu/backend.h"
#include "tests/unit/attention_call.h"

namespace tilewise {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// One request of `rows` rows, one q head and one KV head of 8 dims in fp32.
struct PrepCall {
  explicit PrepCall(std::int64_t rows, core::DType dtype = core::DType::kFp32)
      : q(elements(rows)),
        k(elements(rows)),
        v(elements(rows)),
        q_out(elements(rows), kNaN),
        k_out(elements(rows), kNaN),
        v_out(elements(rows), kNaN) {
    p.tokens = {1, rows, rows, rows, nullptr};
    p.dtype = p.kv_dtype = dtype;
    p.weight_dtype = core::DType::kFp32;
    p.q_heads = p.kv_heads = 1;
    p.head_dim = 8;
    const core::RowStrides stride{rows * 8, 8, 8};
    p.q = {q.data(), stride};
    p.k = {k.data(), stride};
    p.v = {v.data(), stride};
    p.q_out = {q_out.data(), stride};
    p.k_out = {k_out.data(), stride};
    p.v_out = {v_out.data(), stride};
    p.q_weight = p.k_weight = weight.data();
  }

  static std::size_t elements(std::int64_t rows) { return static_cast<std::size_t>(rows * 8); }

  // Position p turns every pair by p quarters.
  void turn_by_quarters(std::int32_t rotary_dim, core::PairStyle pairs) {
    p.rope = {cosines.data(), sines.data(), core::DType::kFp32, 4, 1, 4, 1, 4, rotary_dim, pairs};
  }

  core::QkPrep p{};
  std::vector<float> q, k, v, q_out, k_out, v_out;
  std::vector<float> weight = std::vector<float>(8, 1.0f);
  const std::vector<float> cosines{1, 1, 1, 1, 0, 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, 0};
  const std::vector<float> sines{0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, -1, -1, -1, -1};
};

const std::vector<float> kCounting{1, 2, 3, 4, 5, 6, 7, 8};

TEST(ReferenceOps, WithoutNormAndRotationRowsPassAsTheyCame) {
  PrepCall call(1);
  call.q = kCounting;
  call.k.assign(8, 3.5f);
  call.v.assign(8, -2.0f);
  cpu::reference_qk_prep(call.p);
  EXPECT_THAT(call.q_out, ElementsAreArray(kCounting));
  EXPECT_THAT(call.k_out, Each(3.5f));
  EXPECT_THAT(call.v_out, Each(-2.0f));
}

TEST(ReferenceOps, NormDividesByTheRootOfTheMeanSquarePlusEps) {
  PrepCall call(1);
  call.q = {3, 4, 0, 0, 0, 0, 0, 0};  // mean square 25 / 8
  call.weight[1] = 0.5f;
  call.p.norm = core::Norm::kWeight;
  call.p.eps = 3.125f;  // the root becomes 2.5
  cpu::reference_qk_prep(call.p);
  EXPECT_THAT(call.q_out, ElementsAre(1.2f, 0.8f, 0, 0, 0, 0, 0, 0));
  call.p.norm = core::Norm::kOnePlusWeight;
  cpu::reference_qk_prep(call.p);
  EXPECT_THAT(call.q_out, ElementsAre(2.4f, 2.4f, 0, 0, 0, 0, 0, 0));
}

TEST(ReferenceOps, VMayBeNormedOrBeRawK) {
  PrepCall call(1);
  call.k = {3, 4, 0, 0, 0, 0, 0, 0};
  call.v = {0, 0, 6, 8, 0, 0, 0, 0};
  call.weight.assign(8, 100.0f);
  call.p.norm = core::Norm::kWeight;
  call.turn_by_quarters(8, core::PairStyle::kHalves);
  const std::int32_t position = 1;
  call.p.positions = &position;
  const float root = static_cast<float>(4.0 / std::sqrt(12.5));
  call.p.v_mode = core::VMode::kRms;
  cpu::reference_qk_prep(call.p);
  EXPECT_FLOAT_EQ(call.v_out[3], 8.0f / static_cast<float>(std::sqrt(12.5)));
  call.p.v_mode = core::VMode::kFromRawK;
  call.p.k_out = {call.k.data(), call.p.k.stride};  // in place: V is taken before K is overwritten
  cpu::reference_qk_prep(call.p);
  EXPECT_FLOAT_EQ(call.v_out[1], root * std::sqrt(4.0f));
  EXPECT_THAT(call.k, ElementsAre(0, 0, 0, 0, ::testing::FloatEq(75 * root * 2),
                                  ::testing::FloatEq(100 * root * 2), 0, 0));
}

TEST(ReferenceOps, TwoStepsRoundTheNormedValueBeforeItsWeight) {
  PrepCall call(1, core::DType::kBf16);
  std::vector<std::uint16_t> q(8, 0), out(8, 0);
  q[0] = core::float_to_bf16(3.0f);
  call.p.q.data = q.data();
  call.p.q_out.data = out.data();
  call.p.k_out.data = call.p.v_out.data = nullptr;
  call.p.norm = core::Norm::kWeight;
  // x * inv = 2.8284, in bf16 2.8281; the tie 2.8359 between two bf16 values lies between their
  // products with 1.0027: 2.8361 and 2.8358.
  call.weight[0] = 1.0027f;
  cpu::reference_qk_prep(call.p);
  EXPECT_EQ(core::bf16_to_float(out[0]), 2.84375f);
  call.p.rounding = core::NormRounding::kTwoStep;
  cpu::reference_qk_prep(call.p);
  EXPECT_EQ(core::bf16_to_float(out[0]), 2.828125f);
}

TEST(ReferenceOps, RotationTurnsPairsAndLeavesTheTail) {
  PrepCall call(4);
  for (std::size_t i = 0; i < call.q.size(); ++i) call.q[i] = kCounting[i % 8];
  call.turn_by_quarters(4, core::PairStyle::kHalves);
  cpu::reference_qk_prep(call.p);
  EXPECT_THAT(call.q_out, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, -3, -4, 1, 2, 5, 6, 7, 8,  //
                                      -1, -2, -3, -4, 5, 6, 7, 8, 3, 4, -1, -2, 5, 6, 7, 8));
  call.p.rope.pairs = core::PairStyle::kInterleaved;
  cpu::reference_qk_prep(call.p);
  EXPECT_THAT(call.q_out, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, -2, 1, -4, 3, 5, 6, 7, 8,  //
                                      -1, -2, -3, -4, 5, 6, 7, 8, 2, -1, 4, -3, 5, 6, 7, 8));
}

TEST(ReferenceOps, RowsOutsideTheTableAreLeftOut) {
  PrepCall call(3);
  call.v.assign(24, 5.0f);
  call.turn_by_quarters(8, core::PairStyle::kHalves);
  const std::vector<std::int32_t> positions{4, 0, -1};
  call.p.positions = positions.data();
  cpu::reference_qk_prep(call.p);
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(std::isnan(call.q_out[i]), i < 8 || i >= 16) << i;
    EXPECT_EQ(std::isnan(call.k_out[i]), i < 8 || i >= 16) << i;
  }
  EXPECT_THAT(call.v_out, Each(5.0f));  // V needs no position
}

TEST(ReferenceOps, RowsGoToTheEndOfTheCacheOrToTheirSlots) {
  PrepCall call(2);
  for (std::size_t i = 0; i < 8; ++i) call.k[8 + i] = 1.0f;
  std::vector<float> k_cache(32, kNaN), v_cache(32, kNaN);
  call.p.has_cache = true;
  call.p.kv.layout = core::KvLayout::kContiguous;
  call.p.kv.k = k_cache.data();
  call.p.kv.v = v_cache.data();
  call.p.kv.k_stride = call.p.kv.v_stride = {32, 8, 8};
  call.p.kv.capacity = call.p.kv.max_kv_len = 4;
  call.p.kv.kv_len = 3;
  cpu::reference_qk_prep(call.p);
  EXPECT_TRUE(std::isnan(k_cache[7]));
  EXPECT_EQ(k_cache[8], 0.0f);
  EXPECT_EQ(k_cache[16], 1.0f);
  EXPECT_TRUE(std::isnan(k_cache[24]));
  call.p.kv.layout = core::KvLayout::kPacked;
  const std::vector<std::int32_t> slots{-1, 3};
  call.p.slot_mapping = slots.data();
  cpu::reference_qk_prep(call.p);
  EXPECT_EQ(k_cache[24], 1.0f);
  EXPECT_EQ(v_cache[24], 0.0f);
}

TEST(ReferenceOps, RopeTurnsByTheRowsPosition) {
  std::vector<float> x = kCounting;
  const PrepCall table(1);
  core::Rope call{};
  call.tokens = {1, 1, 1, 1, nullptr};
  call.dtype = core::DType::kFp32;
  call.heads = 1;
  call.head_dim = 8;
  call.x = {x.data(), {8, 8, 8}};
  call.out = {x.data(), {8, 8, 8}};
  call.rope = {table.cosines.data(),    table.sines.data(), core::DType::kFp32, 4, 1, 4, 1, 4, 8,
               core::PairStyle::kHalves};
  const std::int32_t start = 3;
  call.start = &start;
  cpu::reference_rope(call);
  EXPECT_THAT(x, ElementsAre(5, 6, 7, 8, -1, -2, -3, -4));
}

// States of one row and head with two values each.
struct MergeCall {
  MergeCall(std::vector<float> values, std::vector<float> lses)
      : o(std::move(values)), lse(std::move(lses)) {
    m.dtype = m.out_dtype = core::DType::kFp32;
    m.states = static_cast<std::int32_t>(lse.size());
    m.heads = 1;
    m.rows = 1;
    m.v_head_dim = 2;
    m.o = o.data();
    m.o_state_stride = 2;
    m.lse = lse.data();
    m.lse_state_stride = 1;
    m.out = out.data();
    m.out_lse = &out_lse;
  }
  core::MergeStates m{};
  std::vector<float> o, lse, out{kNaN, kNaN};
  float out_lse = kNaN;
};

TEST(ReferenceOps, MergeWeighsStatesByTheirSums) {
  const float ln3 = static_cast<float>(std::log(3.0));
  MergeCall call({4, 0, 0, 8, kNaN, kNaN}, {0, ln3, -kInfinity});
  cpu::reference_merge_states(call.m);
  EXPECT_THAT(call.out, ElementsAre(::testing::FloatEq(1), ::testing::FloatEq(6)));
  EXPECT_FLOAT_EQ(call.out_lse, static_cast<float>(std::log(4.0)));
  const float sink = static_cast<float>(std::log(4.0));
  call.m.sinks = &sink;
  cpu::reference_merge_states(call.m);
  EXPECT_THAT(call.out, ElementsAre(::testing::FloatEq(0.5f), ::testing::FloatEq(3)));
  EXPECT_FLOAT_EQ(call.out_lse, static_cast<float>(std::log(4.0)));
}

TEST(ReferenceOps, MergeOfNothingIsNothing) {
  for (MergeCall call : {MergeCall({}, {}), MergeCall({kNaN, kNaN}, {-kInfinity})}) {
    call.m.out = call.out.data();
    call.m.out_lse = &call.out_lse;
    call.m.lse = call.lse.data();
    cpu::reference_merge_states(call.m);
    EXPECT_THAT(call.out, ElementsAre(0, 0));
    EXPECT_EQ(call.out_lse, -kInfinity);
  }
}

TEST(ReferenceOps, GateCapAndScaleByHand) {
  std::vector<float> o{8, 8, 8};
  const std::vector<float> gate{0, static_cast<float>(std::log(3.0)), -kInfinity};
  cpu::reference_output_gate({core::DType::kFp32, 1, 1, 3, o.data(), 3, 3, gate.data(), 3, 3});
  EXPECT_THAT(o, ElementsAre(4, ::testing::FloatEq(6), 0));
  std::vector<float> x{0, kInfinity, -1e30f, static_cast<float>(2 * std::atanh(0.25))};
  cpu::reference_elementwise(
      {core::ElementwiseOp::kSoftcap, core::DType::kFp32, x.data(), 4, 2.0f});
  EXPECT_THAT(x, ElementsAre(0, 2, -2, ::testing::FloatEq(0.5f)));
  cpu::reference_elementwise({core::ElementwiseOp::kScale, core::DType::kFp32, x.data(), 4, -3.0f});
  EXPECT_THAT(x, ElementsAre(0, -6, 6, ::testing::FloatEq(-1.5f)));
}

// The CPU kernels compute in fp32: in bf16 they differ from the oracle by rare single steps.
TEST(ReferenceOps, CpuPrepDiffersFromTheOracleByRareSteps) {
  for (const core::NormRounding rounding :
       {core::NormRounding::kOnce, core::NormRounding::kTwoStep}) {
    PrepCall call(4, core::DType::kBf16);
    std::vector<std::uint16_t> q(32), kernel(32), oracle(32);
    std::uint32_t state = 7;
    for (std::uint16_t& x : q) {
      state = state * 1664525u + 1013904223u;
      x = core::float_to_bf16(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
    }
    call.p.q.data = q.data();
    call.p.k.data = call.p.k_out.data = call.p.v_out.data = nullptr;
    call.p.norm = core::Norm::kWeight;
    call.p.rounding = rounding;
    call.turn_by_quarters(8, core::PairStyle::kHalves);
    call.p.q_out.data = kernel.data();
    cpu::run_qk_prep(call.p, {testing::thread_per_task, nullptr, 2}, nullptr);
    call.p.q_out.data = oracle.data();
    cpu::reference_qk_prep(call.p);
    int different = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      EXPECT_NEAR(core::bf16_to_float(kernel[i]), core::bf16_to_float(oracle[i]), 0.016f) << i;
      different += kernel[i] != oracle[i] ? 1 : 0;
    }
    EXPECT_LE(different, 1);
  }
}

}  // namespace
}  // namespace tilewise
