// Census: with q = 0 every visible key weighs the same, so the LSE is exactly the log of their
// number, and with V one-hot by key the output says which they are. Masks, windows, lengths and
// chunks become integer comparisons.
#include <gtest/gtest.h>

#include "tests/support/attend.h"
#include "verify/matrix.h"

namespace tilewise::tests {
namespace {

constexpr Index kBlocks = 8;

class Census : public testing::TestWithParam<Index> {};

// Soft-cap and scale leave zero logits alone; ALiBi and sinks change weights, so those cases are
// passed over.
TEST_P(Census, CountsExactlyTheVisibleKeysInEveryVariant) {
  const auto& cases = verify::matrix();
  Index counted = 0;
  for (Index n = GetParam(); n < static_cast<Index>(cases.size()); n += 2 * kBlocks) {
    Case c = at(cases, n);
    if (c.alibi != verify::Alibi::kNone || c.sinks) continue;
    make_census(c);
    const Problem p(c);
    for_each_answer(p, [&](const Answer& answer) { expect_census(p, answer); });
    ++counted;
  }
  EXPECT_GE(counted, 150);
}

INSTANTIATE_TEST_SUITE_P(Blocks, Census, testing::Range(Index{0}, kBlocks));

TEST(CensusByHand, CausalRowsCountUpFromTheFirst) {
  for (const tw_dtype type : all_types()) {
    Case c = make_case(type, 4, 2, 32, {{100, 100}, {100, 163}, {100, 40}});
    make_census(c);
    c.causal = true;
    const Problem p(c);
    const auto count = [&](Index r, Index i, Index) {
      return std::max<Index>(p.kv_len(r) - 100 + i + 1, 0);
    };
    for_each_answer(p, [&](const Answer& answer) { expect_census(p, answer, count); });
  }
}

// Every length near a tile's edge and every chunk count, split and not.
TEST(CensusByHand, DecodeCountsEveryLength) {
  for (const Index first : {1, 60, 120, 500, 2040, 4090}) {
    std::vector<verify::Request> requests;
    for (Index n = 0; n < 12; ++n) requests.push_back({1, first + n});
    Case c = make_case(TW_DTYPE_BF16, 2, 1, 16, requests);
    make_census(c);
    const Problem p(c);
    const auto count = [&](Index r, Index, Index) { return first + r; };
    for_each_answer(p, [&](const Answer& answer) { expect_census(p, answer, count); });
  }
}

}  // namespace
}  // namespace tilewise::tests
