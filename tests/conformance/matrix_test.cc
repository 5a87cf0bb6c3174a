// The whole case matrix against the oracle, in blocks so that shards share it evenly, and what the
// matrix must cover.
#include <gtest/gtest.h>

#include <set>

#include "verify/matrix.h"
#include "verify/runner.h"

namespace tilewise::tests {
namespace {

using verify::at;
using verify::Case;
using verify::Index;
using verify::matrix;

constexpr Index kBlocks = 40;

class Matrix : public testing::TestWithParam<Index> {};

TEST_P(Matrix, EveryVariantAgreesWithTheOracle) {
  std::vector<Case> cases;
  for (Index n = GetParam(); n < static_cast<Index>(matrix().size()); n += kBlocks)
    cases.push_back(at(matrix(), n));
  // A machine with a device has cores to spare, which the oracle needs.
  const auto reports =
      verify::on_cuda() ? verify::run_cases(cases, 4, 1) : verify::run_cases(cases, 1, 2);
  for (const verify::CaseReport& report : reports) {
    const std::string id = report.name.substr(0, report.name.find(' '));
    EXPECT_EQ(report.why, "") << report.name << "\nagain: tilewise verify --filter '^" << id
                              << " '";
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, Matrix, testing::Range(Index{0}, kBlocks));

TEST(MatrixCoverage, HasAtLeastThreeThousandDifferentCases) {
  std::set<std::string> lines;
  for (Case c : matrix()) {
    c.id = "";
    c.seed = 0;
    lines.insert(verify::describe(c));
  }
  EXPECT_GE(matrix().size(), 3000u);
  EXPECT_GE(lines.size(), 2900u);  // settling makes some pairs equal; few
}

TEST(MatrixCoverage, HasEveryDimGroupAndTypeCombination) {
  std::set<Index> dims, v_dims, groups, q_lens, page_sizes;
  std::set<std::pair<tw_dtype, tw_dtype>> types;
  for (const Case& c : matrix()) {
    dims.insert(c.head_dim);
    v_dims.insert(c.v_dim());
    groups.insert(c.group());
    if (c.paged()) page_sizes.insert(c.page_size);
    for (const verify::Request& r : c.requests) q_lens.insert(r.q_len);
    types.insert({c.q_type, c.kv_type});
  }
  for (Index dim = 8; dim <= 512; dim += 8) {
    EXPECT_EQ(dims.count(dim), 1u) << dim;
    EXPECT_EQ(v_dims.count(dim), 1u) << dim;
  }
  for (const Index group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 71, 128})
    EXPECT_EQ(groups.count(group), 1u) << group;
  for (Index q_len = 1; q_len <= 17; ++q_len) EXPECT_EQ(q_lens.count(q_len), 1u) << q_len;
  for (const Index size : {1, 13, 16, 64, 128, 256}) EXPECT_EQ(page_sizes.count(size), 1u) << size;
  EXPECT_EQ(types.size(), 9u);
}

TEST(MatrixCoverage, HasTheLengthsAroundTilesAndChunks) {
  std::set<Index> lens;
  for (const Case& c : matrix()) {
    for (const verify::Request& r : c.requests) lens.insert(r.kv_len);
  }
  for (const Index len : {0, 1, 63, 64, 65, 127, 128, 129, 31, 67, 509, 1021, 2053, 4096, 4097})
    EXPECT_EQ(lens.count(len), 1u) << len;
}

// Features of one axis, and what needs pages with a cache that has none.
bool excludes(const verify::Feature& a, const verify::Feature& b) {
  if (std::string(a.axis) == b.axis) return true;
  const std::string name = b.name;
  return std::string(a.name) == "packed" &&
         (name == "released" || name == "holes" || name == "interleaved");
}

// A pair is met by a case in which both features leave a mark: applying either once more changes
// nothing.
TEST(MatrixCoverage, HasEveryPairOfFeatures) {
  const auto has = [](const Case& c, const verify::Feature& f) {
    Case again = c;
    f.apply(again);
    verify::settle(again);
    return verify::describe(again) == verify::describe(c);
  };
  std::vector<std::vector<bool>> marks;
  for (const Case& c : matrix()) {
    marks.emplace_back();
    for (const verify::Feature& f : verify::features()) marks.back().push_back(has(c, f));
  }
  const auto& features = verify::features();
  for (std::size_t a = 0; a < features.size(); ++a) {
    for (std::size_t b = a; b < features.size(); ++b) {
      if (a != b && excludes(features[a], features[b])) continue;
      std::size_t met = 0;
      for (const auto& mark : marks) met += mark[a] && mark[b] ? 1u : 0u;
      EXPECT_GE(met, 1u) << features[a].name << " with " << features[b].name;
    }
  }
}

}  // namespace
}  // namespace tilewise::tests
