// tw_rope: pairs, angles of far positions, partial rotation, placement and refusal. Its arithmetic
// is that of tw_qk_prep without a norm, which is tested bit by bit there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/prep_support.h"

namespace tilewise::testing {
namespace {

using core::DType;
using core::FaultCode;
using core::FaultWhat;
using core::PairStyle;

struct RopeCall {
  RopeCall(DType type, std::int64_t rows_, std::int32_t heads, std::int32_t dim)
      : rows(rows_), x(type, rows_ * heads * dim), out(type, x.count()) {
    p.tokens = dense_rows(1, rows);
    p.dtype = type;
    p.heads = heads;
    p.head_dim = dim;
    p.x = {x.data(), plain_strides(rows, heads, dim)};
    p.out = {out.data(), p.x.stride};
  }
  RopeCall(const RopeCall&) = delete;
  RopeCall& operator=(const RopeCall&) = delete;

  cpu::FaultRecord run(std::int32_t workers = 1) {
    cpu::FaultRecord record{};
    cpu::run_rope(p, threads(workers), &record);
    return record;
  }
  // The element that is turned together with `d`, or d itself in the tail.
  std::int64_t partner(std::int64_t d) const {
    const std::int64_t pairs = p.rope.rotary_dim / 2;
    if (d >= 2 * pairs) return d;
    if (p.rope.pairs == PairStyle::kInterleaved) return d ^ 1;
    return d < pairs ? d + pairs : d - pairs;
  }

  std::int64_t rows;
  Elements x, out;
  core::Rope p{};
};

// cos and sin in double, for rotations computed without a table.
double turned(const RopeCall& call, std::int64_t row, std::int64_t h, std::int64_t d,
              double position, double theta) {
  const std::int64_t at = (row * call.p.heads + h) * call.p.head_dim;
  const std::int64_t other = call.partner(d);
  const std::int64_t pair =
      call.p.rope.pairs == PairStyle::kInterleaved ? d / 2 : std::min(d, other);
  const double exponent =
      -2.0 * static_cast<double>(pair) / static_cast<double>(call.p.rope.rotary_dim);
  const double angle = position * std::pow(theta, exponent);
  const double sign = d < other ? -1.0 : 1.0;
  return double{call.x[at + d]} * std::cos(angle) +
         sign * double{call.x[at + other]} * std::sin(angle);
}

TEST(Rope, B13_KeepsTheAnglesOfFarPositions) {
  const std::vector<std::int32_t> positions{257, 1000, 15962, 131071};
  // Only the rows that are needed hold numbers; the others are NaN.
  Elements cosine(DType::kFp32, 131072 * 64);
  Elements sine(DType::kFp32, 131072 * 64);
  for (const std::int32_t position : positions) {
    for (std::int64_t d = 0; d < 64; ++d) {
      const double angle = position * std::pow(1e6, -static_cast<double>(d) / 64.0);
      cosine.set(position * 64 + d, static_cast<float>(std::cos(angle)));
      sine.set(position * 64 + d, static_cast<float>(std::sin(angle)));
    }
  }
  for (const PairStyle pairs : {PairStyle::kHalves, PairStyle::kInterleaved}) {
    RopeCall q(DType::kBf16, 4, 2, 128);
    RopeCall k(DType::kBf16, 4, 2, 128);
    q.x.fill_normal(13, 0);
    k.x.fill_normal(13, 1);
    for (RopeCall* call : {&q, &k}) {
      call->p.positions = positions.data();
      call->p.rope = {cosine.data(), sine.data(), DType::kFp32, 64, 1, 64, 1, 131072, 128, pairs};
      EXPECT_TRUE(same_fault(call->run(2), {}));
    }
    for (std::int64_t row = 0; row < 4; ++row) {
      const double position = positions[static_cast<std::size_t>(row)];
      double before = 0, after = 0, q2 = 0, k2 = 0;
      for (std::int64_t i = row * 256; i < row * 256 + 256; ++i) {
        const double wanted = turned(q, row, i % 256 / 128, i % 128, position, 1e6);
        const double ulp = std::ldexp(1.0, std::ilogb(wanted) - 7);
        EXPECT_NEAR(double{q.out[i]}, wanted, ulp + 1e-4) << position;
        before += double{q.x[i]} * double{k.x[i]};
        after += double{q.out[i]} * double{k.out[i]};
        q2 += double{q.x[i]} * double{q.x[i]};
        k2 += double{k.x[i]} * double{k.x[i]};
      }
      EXPECT_NEAR(after, before, 1e-2 * std::sqrt(q2 * k2));
    }
  }
}

TEST(Rope, B14_PairsHalvesOrNeighbours) {
  const std::int32_t position = 3;
  const Angles angles(DType::kFp32, 4, 64);
  for (const PairStyle pairs : {PairStyle::kHalves, PairStyle::kInterleaved}) {
    RopeCall call(DType::kFp32, 1, 1, 64);
    call.x.fill(0.0f);
    call.x.set(0, 1.0f);
    call.p.rope = angles.table;
    call.p.rope.pairs = pairs;
    call.p.start = &position;
    call.run();
    for (std::int64_t d = 0; d < 64; ++d) {
      const double wanted = d == 0 ? -0.989992 : d == call.partner(0) ? 0.141120 : 0.0;
      EXPECT_NEAR(double{call.out[d]}, wanted, 1e-6) << d;
    }
    call.x.fill_normal(14, 0);
    call.run();
    for (std::int64_t d = 0; d < 64; ++d) {
      EXPECT_NEAR(double{call.out[d]}, turned(call, 0, 0, d, 3.0, 1e4), 1e-6);
    }
  }
}

TEST(Rope, EqualsPrepWithoutNormInEveryTypeAndLeavesTheTail) {
  for (const DType type : kAllTypes) {
    for (const PairStyle pairs : {PairStyle::kHalves, PairStyle::kInterleaved}) {
      for (const std::int32_t rotary_dim : {2, 24, 72}) {
        RopeCall call(type, 5, 3, 72);
        const Angles angles(DType::kBf16, 8, rotary_dim, 500.0, 2);
        call.x.fill_normal(1, 0);
        call.p.rope = angles.table;
        call.p.rope.pairs = pairs;
        call.run(2);
        core::QkPrep p{};
        p.dtype = type;
        p.rope = call.p.rope;
        for (std::int64_t row = 0; row < 5; ++row) {
          for (std::int64_t h = 0; h < 3; ++h) {
            const Head in = head_of(call.x, 3, 72, row, h);
            const Head out = head_of(call.out, 3, 72, row, h);
            EXPECT_EQ(out, emulated_rotation(p, in, row));
            EXPECT_TRUE(std::equal(in.begin() + rotary_dim, in.end(), out.begin() + rotary_dim));
          }
        }
        EXPECT_TRUE(call.out.guards_intact());
      }
    }
  }
}

TEST(Rope, WorksInPlaceAndOnAnyThreads) {
  const Angles angles(DType::kFp32, 300, 64);
  RopeCall apart(DType::kBf16, 300, 4, 64);
  RopeCall in_place(DType::kBf16, 300, 4, 64);
  for (RopeCall* call : {&apart, &in_place}) {
    call->x.fill_normal(5, 0);
    call->p.rope = angles.table;
  }
  in_place.p.out.data = in_place.x.data();
  apart.run(1);
  in_place.run(6);
  EXPECT_EQ(in_place.x, apart.out);
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  const Angles angles(DType::kFp32, 8, 64);
  for (const std::int32_t bad : {8, -1, INT32_MAX, INT32_MIN}) {
    RopeCall call(DType::kFp16, 4, 2, 64);
    call.x.fill_normal(5, 0);
    call.p.rope = angles.table;
    const std::vector<std::int32_t> positions{7, 0, bad, 3};
    call.p.positions = positions.data();
    const cpu::FaultRecord wanted = fault(bad < 0 ? FaultCode::kNegative : FaultCode::kAboveBound,
                                          FaultWhat::kPosition, 0, 2, bad);
    EXPECT_TRUE(same_fault(call.run(3), wanted));
    EXPECT_TRUE(call.out.untouched(2 * 128, 3 * 128));
    EXPECT_FALSE(call.out.untouched(128) || call.out.untouched(3 * 128));
  }
}

TEST(Rope, CountsEachRequestFromItsStart) {
  const Angles angles(DType::kFp32, 16, 64);
  RopeCall call(DType::kFp32, 6, 1, 64);
  call.x.fill_normal(5, 0);
  call.p.rope = angles.table;
  const std::vector<std::int32_t> indptr{0, 2, 2, 6};
  const std::vector<std::int32_t> start{9, 3, 4};
  call.p.tokens = ragged_rows(indptr, 6);
  call.p.x.stride.batch = call.p.out.stride.batch = 0;
  call.p.start = start.data();
  call.run();
  core::QkPrep p{};
  p.dtype = DType::kFp32;
  p.rope = angles.table;
  const std::int64_t positions[] = {9, 10, 4, 5, 6, 7};
  for (std::int64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(head_of(call.out, 1, 64, row, 0),
              emulated_rotation(p, head_of(call.x, 1, 64, row, 0), positions[row]));
  }
}

}  // namespace
}  // namespace tilewise::testing
