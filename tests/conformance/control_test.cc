// Can the comparison fail? Each test hands the library arguments with one planted error and expects
// the verdict against the oracle of the right problem to say so.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/attend.h"

namespace tilewise::tests {
namespace {

// A case in which every feature below matters.
Case rich_case() {
  Case c = make_case(TW_DTYPE_BF16, 4, 2, 64, {{3, 90}, {20, 150}});
  c.ragged = true;
  c.storage = verify::Storage::kBlockTable;
  c.causal = true;
  c.window_left = 40;
  c.softcap = 2;
  c.alibi = verify::Alibi::kPerHead;
  c.sinks = true;
  c.mask = verify::MaskKind::kPerRequest;
  c.append = verify::Append::kSame;
  return c;
}

struct Planted {
  const char* what;
  void (*change)(verify::Call&);
};

const Planted kErrors[] = {
    {"window one key too wide", [](verify::Call& call) { ++call.args().window_left; }},
    {"window dropped",
     [](verify::Call& call) { call.args().flags &= ~static_cast<std::uint32_t>(TW_WINDOW_LEFT); }},
    {"softcap dropped", [](verify::Call& call) { call.args().softcap = 0; }},
    {"ALiBi dropped", [](verify::Call& call) { call.args().alibi_slopes = nullptr; }},
    {"sinks dropped", [](verify::Call& call) { call.args().sinks = nullptr; }},
    {"mask dropped", [](verify::Call& call) { call.args().mask = nullptr; }},
    {"scale off by 2 %", [](verify::Call& call) { call.args().scale = 0.125f * 1.02f; }},
    {"a page table row for another request",
     [](verify::Call& call) { call.kv().page_rows = nullptr; }},
    {"append dropped", [](verify::Call& call) { call.args().append = nullptr; }},
    {"V's stride taken for K's",
     [](verify::Call& call) { std::swap(call.kv().v_head_stride, call.kv().v_token_stride); }}};

std::ostream& operator<<(std::ostream& out, const Planted& p) { return out << p.what; }

class PlantedError : public testing::TestWithParam<Planted> {};

TEST_P(PlantedError, IsSeen) {
  const Problem p(rich_case());
  verify::Call right(p), wrong(p);
  const Answer oracle = right.run({verify::kReference, TW_DTYPE_FP32});
  const verify::Tolerance allowed =
      verify::tolerance(p, verify::emulate(p, TW_DTYPE_BF16), oracle, false);
  ASSERT_EQ(verify::judge(p, oracle, right.run({verify::kSimdSelf}), allowed).why, "");
  GetParam().change(wrong);
  EXPECT_NE(verify::judge(p, oracle, wrong.run({verify::kSimdSelf}), allowed).why, "")
      << GetParam().what;
}

INSTANTIATE_TEST_SUITE_P(All, PlantedError, testing::ValuesIn(kErrors));

TEST(Comparison, SeesNonFinitePlacesAndWritesOutside) {
  const Problem p(make_case(TW_DTYPE_FP32, 2, 1, 16, {{2, 5}}));
  const Answer oracle = verify::attend(p, {verify::kReference});
  const verify::Tolerance allowed =
      verify::tolerance(p, verify::emulate(p, TW_DTYPE_FP32), oracle, true);
  Answer answer = oracle;
  EXPECT_TRUE(verify::judge(p, oracle, answer, allowed).ok());
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    answer.o[7] = bad;
    EXPECT_FALSE(verify::judge(p, oracle, answer, allowed).ok()) << bad;
    answer.o[7] = oracle.o[7];
    answer.lse[1] = bad;
    EXPECT_FALSE(verify::judge(p, oracle, answer, allowed).ok()) << bad;
    answer.lse[1] = oracle.lse[1];
  }
  answer.damage = "wrote beside o";
  EXPECT_FALSE(verify::judge(p, oracle, answer, allowed).ok());
}

TEST(Guards, SeeAByteWrittenBesideABlock) {
  const verify::Block block(40, 4, 0);
  EXPECT_TRUE(block.guards_intact());
  EXPECT_TRUE(block.is_all(0));
  block.data()[39] = 1;
  EXPECT_FALSE(block.is_all(0));
  EXPECT_TRUE(block.guards_intact());
}

// The integers of the seed rule, so that other languages can draw the same inputs.
TEST(SeedRule, GivesThePublishedVector) {
  const verify::Stream stream(1, verify::kQ);
  EXPECT_NEAR(stream.uniform(1), 0.3048969507, 1e-10);
  EXPECT_NEAR(stream.uniform(2), 0.4024242163, 1e-10);
  EXPECT_NEAR(stream.uniform(4), 0.3128273487, 1e-10);
  EXPECT_NEAR(stream.normal(0), 0.48156941, 1e-8);
  EXPECT_NEAR(stream.normal(1), 0.18115354, 1e-8);
  EXPECT_NEAR(stream.normal(2), -0.16198027, 1e-8);
}

}  // namespace
}  // namespace tilewise::tests
