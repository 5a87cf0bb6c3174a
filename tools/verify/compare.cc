// Comparison of answers.
#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace tilewise::verify {
namespace {

double size(double x) { return std::fabs(x); }

bool same_kind(double a, double b) {
  if (std::isfinite(a) || std::isfinite(b)) return std::isfinite(a) == std::isfinite(b);
  return std::isnan(a) == std::isnan(b) && std::signbit(a) == std::signbit(b);
}

// "request 1 row 0 head 3": where the n-th (row, head) pair is.
std::string place(const Problem& p, Index n) {
  const Index heads = p.c().q_heads;
  Index r = 0;
  while (p.first_row(r + 1) * heads <= n) ++r;
  std::ostringstream out;
  out << "request " << r << " row " << n / heads - p.first_row(r) << " head " << n % heads;
  return out.str();
}

std::string difference(const char* what, const std::string& where, double got, double wanted,
                       double allowed) {
  std::ostringstream out;
  out.precision(9);
  out << what << " of " << where << " is " << got << ", oracle " << wanted << ", allowed "
      << allowed;
  return out.str();
}

void judge_outputs(const Problem& p, const Answer& oracle, const Answer& answer,
                   const Tolerance& allowed, Verdict* verdict) {
  const Index dim = p.c().v_dim();
  for (Index n = 0; n < static_cast<Index>(oracle.o.size()); ++n) {
    const double wanted = static_cast<double>(at(oracle.o, n)),
                 got = static_cast<double>(at(answer.o, n));
    const double error = size(got - wanted);
    const bool right =
        same_kind(got, wanted) && (!std::isfinite(wanted) || error <= allowed.of(wanted));
    if (!right && verdict->ok()) {
      const std::string where = place(p, n / dim) + " element " + std::to_string(n % dim);
      verdict->why = difference("o", where, got, wanted, allowed.of(wanted));
    }
    if (std::isfinite(error)) verdict->worst_absolute = std::max(verdict->worst_absolute, error);
  }
  const double largest = p.largest_v();
  verdict->worst_relative = largest > 0 ? verdict->worst_absolute / largest : 0;
}

void judge_lse(const Problem& p, const std::vector<float>& oracle, const std::vector<float>& got,
               const Tolerance& allowed, Verdict* verdict) {
  for (Index n = 0; n < static_cast<Index>(oracle.size()); ++n) {
    const double wanted = static_cast<double>(at(oracle, n)),
                 given = static_cast<double>(at(got, n));
    const double limit = allowed.lse + allowed.lse_relative * size(wanted);
    const bool right =
        same_kind(given, wanted) && (!std::isfinite(wanted) || size(given - wanted) <= limit);
    if (!right && verdict->ok())
      verdict->why = difference("lse", place(p, n), given, wanted, limit);
  }
}

double worst_error(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t n = 0; n < a.size(); ++n) {
    const double error = size(static_cast<double>(a[n]) - static_cast<double>(b[n]));
    if (std::isfinite(error)) worst = std::max(worst, error);
  }
  return worst;
}

}  // namespace

Tolerance tolerance(const Problem& p, const Emulation& e, const Answer& oracle,
                    bool keeps_float_weights) {
  const double float_bound = 1e-5 * p.largest_v();
  Tolerance t;
  t.o_type = p.c().output_type();
  t.absolute = float_bound;
  t.lse = 2e-5;
  if (weight_type(p.c()) == TW_DTYPE_FP32) return t;
  // The floor of a tenth of the float bound is for cases so small that the emulation happens to be
  // exact.
  const double emulated = std::max(2 * worst_error(e.o, oracle.o), float_bound / 10);
  t.absolute = keeps_float_weights ? std::min(emulated, float_bound) : emulated;
  if (!keeps_float_weights) t.lse = 1e-3;
  return t;
}

Verdict judge(const Problem& p, const Answer& oracle, const Answer& answer,
              const Tolerance& allowed) {
  Verdict verdict;
  if (answer.status != TW_OK) {
    verdict.why = std::string(tw_status_string(answer.status)) + ": " + answer.error;
    return verdict;
  }
  verdict.why = answer.damage;
  judge_outputs(p, oracle, answer, allowed, &verdict);
  judge_lse(p, oracle.lse, answer.lse, allowed, &verdict);
  if (verdict.ok() && answer.fault.code != 0)
    verdict.why = "a fault was recorded: what " + std::to_string(answer.fault.what);
  return verdict;
}

Verdict judge_oracle(const Problem& p, const Emulation& e, const Answer& oracle) {
  Verdict verdict;
  if (oracle.status != TW_OK) {
    verdict.why = std::string(tw_status_string(oracle.status)) + ": " + oracle.error;
    return verdict;
  }
  Tolerance t;
  // Weights lie in [0, 1] and are off by half an ulp of their type: 2^-9 (bf16) or 2^-12 (fp16) of
  // |V| at worst.
  const tw_dtype weights = weight_type(p.c());
  const double rounding = weights == TW_DTYPE_BF16   ? 0x1p-8
                          : weights == TW_DTYPE_FP16 ? 0x1p-11
                                                     : 0;
  t.absolute = (2e-5 + rounding) * p.largest_v();
  t.lse = 2e-5;
  verdict.why = oracle.damage;
  Answer emulated;
  emulated.o = e.o;
  judge_outputs(p, oracle, emulated, t, &verdict);
  if (!oracle.lse.empty()) judge_lse(p, oracle.lse, e.lse, t, &verdict);
  return verdict;
}

}  // namespace tilewise::verify
