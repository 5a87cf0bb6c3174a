// Helpers of the conformance tests.
#include "tests/support/attend.h"

#include <algorithm>
#include <cmath>

namespace tilewise::tests {
namespace {

constexpr Index kShown = 5;  // mismatches told of one answer before the rest is passed over

std::string where(Index r, Index i, Index h) {
  return "request " + std::to_string(r) + " row " + std::to_string(i) + " head " +
         std::to_string(h);
}

void look_at(const Problem& p, int variant, const std::function<void(const Answer&)>& look) {
  SCOPED_TRACE("variant " + std::to_string(variant) + ": " + verify::describe(p.c()));
  const Answer answer = verify::attend(p, {variant});
  ASSERT_EQ(answer.status, TW_OK) << answer.error;
  EXPECT_EQ(answer.damage, "");
  EXPECT_EQ(answer.fault.code, TW_FAULT_NONE);
  look(answer);
}

// How many of the keys that a row sees have each residue; its sum is their number.
std::vector<Index> residues(const Problem& p, Index r, Index i, Index h) {
  std::vector<Index> counts(static_cast<std::size_t>(p.c().v_dim()), 0);
  for (Index j = 0; j < p.kv_len(r); ++j) {
    if (p.sees(r, i, h, j)) ++at(counts, j % p.c().v_dim());
  }
  return counts;
}

bool census_row_right(const Problem& p, const Answer& answer, Index r, Index i, Index h) {
  const std::vector<Index> counts = residues(p, r, i, h);
  Index seen = 0;
  for (const Index count : counts) seen += count;
  const auto expected = static_cast<float>(std::log(static_cast<double>(seen)));  // -inf for none
  bool right = answer.lse.empty() || lse(p, answer, r, i, h) == expected;
  for (Index d = 0; d < p.c().v_dim(); ++d) {
    const double share = static_cast<double>(output(p, answer, r, i, h, d));
    right = right && std::lround(share * static_cast<double>(seen)) == at(counts, d);
  }
  return right;
}

}  // namespace

void use_backend_environment();

Case make_case(tw_dtype type, Index q_heads, Index kv_heads, Index head_dim,
               std::vector<verify::Request> requests) {
  use_backend_environment();
  Case c;
  c.id = "test";
  c.q_type = c.kv_type = type;
  c.q_heads = q_heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.requests = std::move(requests);
  return c;
}

const std::vector<tw_dtype>& all_types() {
  static const std::vector<tw_dtype> types = {TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32};
  return types;
}

void expect_right(const Problem& p) {
  const verify::CaseReport report = verify::run_problem(p, 2);
  EXPECT_EQ(report.why, "") << report.name;
}

void expect_within(const Problem& p, double a) {
  const Answer oracle = verify::attend(p, {verify::kReference, TW_DTYPE_FP32});
  for_each_answer(p, [&](const Answer& answer) {
    verify::Tolerance allowed;
    allowed.o_type = p.c().output_type();
    allowed.absolute = a * std::max(1.0, p.largest_v());
    allowed.lse = 1e-3;
    EXPECT_EQ(verify::judge(p, oracle, answer, allowed).why, "");
  });
}

void make_census(Case& c) {
  c.fill = verify::Fill::kCensus;
  c.o_type = TW_DTYPE_FP32;
}

std::vector<int> usable_variants(const Problem& p) {
  std::vector<int> usable;
  for (const verify::VariantInfo& info : verify::variants()) {
    if (info.required || verify::attend(p, {info.number}).status != TW_UNSUPPORTED)
      usable.push_back(info.number);
  }
  return usable;
}

std::vector<std::pair<int, int>> usable_twins(const Problem& p) {
  const std::vector<int> usable = usable_variants(p);
  std::vector<std::pair<int, int>> twins;
  for (const verify::VariantInfo& info : verify::variants()) {
    const bool has = std::find(usable.begin(), usable.end(), info.number) != usable.end();
    if (info.twin != 0 && has) twins.emplace_back(info.number, info.twin);
  }
  return twins;
}

void for_each_answer(const Problem& p, const std::function<void(const Answer&)>& look) {
  look_at(p, verify::kReference, look);
  for (const int variant : usable_variants(p)) look_at(p, variant, look);
}

float output(const Problem& p, const Answer& answer, Index r, Index i, Index h, Index d) {
  return at(answer.o, ((p.first_row(r) + i) * p.c().q_heads + h) * p.c().v_dim() + d);
}

float lse(const Problem& p, const Answer& answer, Index r, Index i, Index h) {
  return at(answer.lse, (p.first_row(r) + i) * p.c().q_heads + h);
}

void expect_census(const Problem& p, const Answer& answer,
                   const std::function<Index(Index, Index, Index)>& count) {
  Index wrong = 0;
  for (Index r = 0; r < p.c().batch(); ++r) {
    for (Index n = 0; n < p.q_len(r) * p.c().q_heads && wrong < kShown; ++n) {
      const Index i = n / p.c().q_heads, h = n % p.c().q_heads;
      const bool right = census_row_right(p, answer, r, i, h);
      wrong += right ? 0 : 1;
      EXPECT_TRUE(right) << where(r, i, h);
      if (!count) continue;
      EXPECT_EQ(lse(p, answer, r, i, h),
                static_cast<float>(std::log(static_cast<double>(count(r, i, h)))))
          << where(r, i, h);
    }
  }
}

void expect_empty_row(const Problem& p, const Answer& answer, Index r, Index i) {
  for (Index h = 0; h < p.c().q_heads; ++h) {
    EXPECT_EQ(lse(p, answer, r, i, h), -HUGE_VALF) << where(r, i, h);
    for (Index d = 0; d < p.c().v_dim(); ++d) {
      const float o = output(p, answer, r, i, h, d);
      ASSERT_TRUE(o == 0.0f && !std::signbit(o))
          << where(r, i, h) << " element " << d << " is " << o;
    }
  }
}

std::vector<std::uint8_t> row_bytes(const Problem& p, const Answer& answer, Index first,
                                    Index last) {
  const Index heads = p.c().q_heads;
  const Index wide = heads * p.c().v_dim() * verify::element_bytes(p.c().output_type());
  const auto begin = answer.bytes.begin();
  std::vector<std::uint8_t> bytes(begin + first * wide, begin + last * wide);
  if (p.c().lse) {
    const auto stats = begin + p.rows() * wide;
    bytes.insert(bytes.end(), stats + first * heads * 4, stats + last * heads * 4);
  }
  return bytes;
}

std::vector<std::uint8_t> request_bytes(const Problem& p, const Answer& answer, Index r) {
  return row_bytes(p, answer, p.first_row(r), p.first_row(r + 1));
}

}  // namespace tilewise::tests
