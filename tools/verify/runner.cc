// One case through all variants.
#include "verify/runner.h"

namespace tilewise::verify {
namespace {

void compare_bits(const VariantInfo& info, const std::vector<Answer>& answers,
                  VariantReport* report) {
  const Answer& own = answers.back();
  for (std::size_t n = 0; n + 1 < answers.size(); ++n) {
    if (cpu_variants()[n].number != info.twin || answers[n].status != TW_OK) continue;
    report->bits_checked = true;
    report->bits_equal = answers[n].bytes == own.bytes;
  }
}

VariantReport judge_variant(const Problem& p, const VariantInfo& info, const Emulation& e,
                            const Answer& oracle, const std::vector<Answer>& answers) {
  VariantReport report;
  report.number = info.number;
  const Answer& own = answers.back();
  if (own.status == TW_UNSUPPORTED && !info.required) return report;
  report.ran = true;
  report.verdict = judge(p, oracle, own, tolerance(p, e, oracle, info.keeps_float_weights));
  if (own.status == TW_OK && info.twin != 0) compare_bits(info, answers, &report);
  if (!report.bits_equal && report.verdict.ok())
    report.verdict.why = "bytes differ from variant " + std::to_string(info.twin);
  return report;
}

}  // namespace

const std::vector<VariantInfo>& cpu_variants() {
  static const std::vector<VariantInfo> variants = {
      {kSimdSelf, "simd self", 0, true, true},
      {kSimdSplit, "simd split", kSimdSelf, true, true},
      {kAmxSelf, "amx self", 0, false, false},
      {kAmxSplit, "amx split", kAmxSelf, false, false}};
  return variants;
}

CaseReport run_problem(const Problem& p, int oracle_threads) {
  CaseReport report;
  report.name = describe(p.c());
  Call call(p);
  const Emulation e = emulate(p, weight_type(p.c()));
  const Answer oracle = call.run({kReference, TW_DTYPE_FP32, oracle_threads});
  const Verdict sound = judge_oracle(p, e, oracle);
  if (!sound.ok()) {
    report.why = "oracle: " + sound.why;
    return report;
  }
  std::vector<Answer> answers;
  for (const VariantInfo& info : cpu_variants()) {
    answers.push_back(call.run({info.number}));
    report.variants.push_back(judge_variant(p, info, e, oracle, answers));
    const Verdict& verdict = report.variants.back().verdict;
    if (!verdict.ok() && report.why.empty())
      report.why = std::string(info.name) + ": " + verdict.why;
  }
  return report;
}

CaseReport run_case(const Case& c, int oracle_threads) {
  return run_problem(Problem(c), oracle_threads);
}

}  // namespace tilewise::verify
