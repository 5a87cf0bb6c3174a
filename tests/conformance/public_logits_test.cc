// Public bug reports about logits: sentinels, soft-cap, sinks. Names carry the ids of
// docs/cases.md.
#include <cmath>

#include "tests/support/attend.h"

namespace tilewise::tests {
namespace {

using verify::Storage;

constexpr double kT32 = 2e-5, kT16 = 2e-3, kTB = 1e-2;

double tolerance_of(tw_dtype type) {
  return type == TW_DTYPE_FP32 ? kT32 : type == TW_DTYPE_FP16 ? kT16 : kTB;
}

Problem::Filler constant(double value) {
  return [value](Index, Index, Index, Index) { return value; };
}

// -(4 + 0.25 * G) against q = 4: every logit far below zero.
Problem::Filler negative_keys(const Case& c) {
  return [c](Index, Index j, Index h, Index d) {
    return -(4 +
             0.25 *
                 verify::Stream(c.seed, verify::kK).normal((j * c.kv_heads + h) * c.head_dim + d));
  };
}

void expect_uniform_ones(const Case& c, double q, double k, double lse_of_one, double lse_error) {
  Problem p(c);
  p.set_q(constant(q));
  p.set_k(constant(k));
  p.set_v(constant(1));
  for_each_answer(p, [&](const Answer& answer) {
    for (const float o : answer.o) ASSERT_EQ(o, 1.0f);
    const double wanted = lse_of_one + std::log(static_cast<double>(p.kv_len(0)));
    for (const float l : answer.lse) ASSERT_NEAR(static_cast<double>(l), wanted, lse_error);
  });
}

TEST(PublicCases, B01VeryNegativeLogitsAreNotAbsentKeys) {
  for (const tw_dtype type : all_types()) {
    for (const Index n : {1, 17, 4096}) {
      for (const Index q_len : {1, 20}) {
        if (q_len > 1 && n > 17) continue;  // the long one is a decode
        Case c = make_case(type, 32, 8, 128, {{q_len, n}});
        c.storage = n % 2 != 0 ? Storage::kCsr : Storage::kContiguous;
        expect_uniform_ones(c, 64, -64, -46340.95, 0.1);
        const double huge = verify::round_to(type, 1e28);
        if (type == TW_DTYPE_FP16) continue;
        const double lse = -64 * huge * std::sqrt(128.0);
        expect_uniform_ones(c, 64, -huge, lse, std::fabs(lse) * 1e-6);
      }
    }
  }
}

TEST(PublicCases, B02AMaskedFirstBlockLeavesTheMaximumAlone) {
  for (const Index left : {verify::kOff, Index{63}}) {
    Case c = make_case(TW_DTYPE_BF16, 14, 2, 128, {{88, 448}});
    c.seed = 2;
    c.causal = true;
    c.window_left = left;
    Problem p(c);
    p.set_q(constant(4));
    p.set_k(negative_keys(c));
    expect_within(p, kTB);
    for_each_answer(p, [&](const Answer& answer) {
      for (Index row = 0; row < 88 * 14; ++row) {
        float most = 0;
        for (Index d = 0; d < 128; ++d)
          most = std::max(most, std::fabs(at(answer.o, row * 128 + d)));
        ASSERT_GT(most, 0.1f) << "row " << row;
      }
    });
  }
}

TEST(PublicCases, B22SoftcapComesBeforeTheMask) {
  for (const tw_dtype type : all_types()) {
    for (const Index left : {verify::kOff, Index{8}}) {
      Case c = make_case(type, 4, 4, 64, {{16, 64}});
      c.seed = 22;
      c.causal = true;
      c.softcap = left == verify::kOff ? 1.0f : 50.0f;
      c.window_left = left;
      const auto with_tail = [&](double value) {
        Problem p(c);
        p.set_v([&, value](Index, Index j, Index h, Index d) {
          return j >= 60 ? value : verify::Stream(c.seed, verify::kV).normal((j * 4 + h) * 64 + d);
        });
        return p;
      };
      const Problem huge = with_tail(1e4), zero = with_tail(0);
      expect_within(zero, kT16);
      for (const int variant : usable_variants(zero)) {
        const Answer a = verify::attend(huge, {variant}), b = verify::attend(zero, {variant});
        EXPECT_EQ(row_bytes(huge, a, 0, 12), row_bytes(zero, b, 0, 12)) << "variant " << variant;
      }
    }
  }
}

TEST(PublicCases, B23SoftcapOfLargeLogitsIsTheCap) {
  const double logits[] = {1024, 4096, 8192, 16384, -8192, 4096, 1048576, -1048576};
  for (const tw_dtype type : {TW_DTYPE_FP32, TW_DTYPE_BF16}) {
    for (const Index n : {6, 8}) {
      Case c = make_case(type, 1, 1, 64, {{1, n}});
      c.seed = 23;
      c.softcap = 50;
      c.scale = 1;
      Problem p(c);
      p.set_q([](Index, Index, Index, Index d) { return d == 0 ? 1.0 : 0.0; });
      p.set_k([&](Index, Index j, Index, Index d) { return d == 0 ? logits[j] : 0.0; });
      expect_within(p, tolerance_of(type));
      const double positive = n == 6 ? 5 : 6;
      for_each_answer(p, [&](const Answer& answer) {
        EXPECT_NEAR(static_cast<double>(answer.lse[0]), 50 + std::log(positive), 1e-3);
      });
    }
  }
}

TEST(PublicCases, B29ATailOfTheTileDoesNotWinTheSoftmax) {
  for (const tw_dtype type : all_types()) {
    for (const Index kv_len : {65, 129, 96, 160, 192 + 64}) {
      for (const verify::MaskKind mask : {verify::MaskKind::kNone, verify::MaskKind::kShared}) {
        Case c = make_case(type, 4, 1, 64, {{1, kv_len}});
        c.seed = 29;
        c.mask = mask;
        Problem p(c);
        p.set_q(constant(4));
        p.set_k(negative_keys(c));
        expect_within(p, tolerance_of(type));
        for_each_answer(p, [](const Answer& answer) { EXPECT_LT(answer.lse[0], -100.0f); });
      }
    }
  }
}

TEST(PublicCases, B53SoftcapAppliesToTheScaledProduct) {
  Case c = make_case(TW_DTYPE_FP32, 4, 4, 64, {{16, 64}});
  c.seed = 53;
  c.softcap = 30;
  c.scale = 0.125f;
  Problem p(c);
  p.set_q([&](Index, Index i, Index h, Index d) {
    return 24 * verify::Stream(53, verify::kQ).normal((i * 4 + h) * 64 + d);
  });
  expect_within(p, kT32);
}

TEST(PublicCases, B91SinksAreNeitherScaledNorCapped) {
  for (const tw_dtype type : all_types()) {
    Case c = make_case(type, 4, 2, 64, {{1, 40}});
    c.seed = 91;
    c.softcap = 20;
    c.scale = 0.125f;
    c.sinks = true;
    Problem p(c);
    p.sinks = {60, 5, 0, -5};
    expect_within(p, tolerance_of(type));
    for_each_answer(p, [&](const Answer& answer) {
      // exp(60) against forty weights of ordinary size: the row is nothing but sink.
      for (Index d = 0; d < 64; ++d) EXPECT_LT(std::fabs(output(p, answer, 0, 0, 0, d)), 1e-18f);
      EXPECT_GT(std::fabs(output(p, answer, 0, 0, 3, 0)), 1e-4f);
    });
  }
}

TEST(PublicCases, B92SinksHoldInEveryPath) {
  for (const tw_dtype type : all_types()) {
    for (const Index kv_len : {0, 1, 40, 5000}) {
      for (const Index left : {verify::kOff, Index{31}}) {
        Case c = make_case(type, 4, 2, 64, {{1, kv_len}});
        c.seed = 92;
        c.causal = true;
        c.window_left = left;
        Case without = c;
        c.sinks = true;
        Problem p(c);
        const Problem bare(without);
        p.sinks = {2, -HUGE_VALF, 0, 30};
        expect_within(p, tolerance_of(type));
        for (const int variant : usable_variants(p)) {
          const Answer a = verify::attend(p, {variant}), b = verify::attend(bare, {variant});
          EXPECT_EQ(a.lse, b.lse) << "a sink is no part of the LSE";
          for (Index d = 0; d < 64; ++d)
            EXPECT_EQ(output(p, a, 0, 0, 1, d), output(bare, b, 0, 0, 1, d)) << "sink -inf";
          if (kv_len == 0) expect_empty_row(p, a, 0, 0);
        }
      }
    }
  }
}

// A masked key with a far larger logit must not enter the row's maximum.
TEST(PublicCases, B01AMaskedKeyWithALargeLogitDoesNotLeak) {
  for (const tw_dtype type : all_types()) {
    Case c = make_case(type, 4, 1, 128, {{32, 32}});
    c.causal = true;
    Problem p(c);
    p.set_q(constant(0.0625));
    p.set_k([](Index, Index j, Index, Index) { return j < 16 ? -8.0 : 64.0; });
    expect_within(p, tolerance_of(type));
  }
}

}  // namespace
}  // namespace tilewise::tests
