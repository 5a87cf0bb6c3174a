// One case through all variants, and many cases.
#include "verify/runner.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace tilewise::verify {
namespace {

void compare_bits(const VariantInfo& info, const std::vector<Answer>& answers,
                  VariantReport* report) {
  const Answer& own = answers.back();
  for (std::size_t n = 0; n + 1 < answers.size(); ++n) {
    if (variants()[n].number != info.twin || answers[n].status != TW_OK) continue;
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
  for (const VariantInfo& info : variants()) {
    answers.push_back(call.run({info.number}));
    report.variants.push_back(judge_variant(p, info, e, oracle, answers));
    const Verdict& verdict = report.variants.back().verdict;
    if (!verdict.ok() && report.why.empty())
      report.why = std::string(info.name) + ": " + verdict.why;
  }
  return report;
}

CaseReport run_case(const Case& c, int oracle_threads) {
  try {
    return run_problem(Problem(c), oracle_threads);
  } catch (const std::runtime_error& error) {  // of the device
    CaseReport report;
    report.name = describe(c);
    report.why = error.what();
    report.device_lost = true;
    return report;
  }
}

std::vector<CaseReport> run_cases(const std::vector<Case>& cases, int at_once, int oracle_threads,
                                  const OnDone& done) {
  std::vector<CaseReport> reports(cases.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Index ended = 0;
  const auto work = [&] {
    for (std::size_t n = next++; n < cases.size(); n = next++) {
      reports[n] = run_case(cases[n], oracle_threads);
      if (reports[n].device_lost) next = cases.size();
      const std::lock_guard<std::mutex> lock(mutex);
      if (done) done(++ended, cases[n]);
    }
  };
  const auto most = static_cast<int>(std::max<std::size_t>(cases.size(), 1));
  std::vector<std::thread> helpers;
  for (int n = 1; n < std::min(at_once, most); ++n) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  reports.erase(std::remove_if(reports.begin(), reports.end(),
                               [](const CaseReport& report) { return report.name.empty(); }),
                reports.end());
  return reports;
}

}  // namespace tilewise::verify
