// Runs the chosen cases, adds up what each variant did, and prints a table or JSON.
#include "verify/verify.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>
#include <thread>

#include "common/progress.h"
#include "common/table.h"
#include "verify/matrix.h"
#include "verify/runner.h"

namespace tilewise::verify {
namespace {

struct Tally {
  const VariantInfo* info = nullptr;
  Index cases = 0, failed = 0, bits_checked = 0, bits_differ = 0;
  double worst_absolute = 0, worst_relative = 0;
};

struct Failure {
  std::string name, why;
};

struct Totals {
  Index cases = 0;
  std::vector<Tally> variants;
  std::vector<Failure> failures;
};

// The matrix, an even sample of it, or the matrix and random cases after it.
std::vector<Case> chosen_cases(const VerifyOptions& options) {
  const auto whole = static_cast<Index>(matrix().size());
  const Index wanted = options.cases > 0 ? options.cases : whole;
  std::vector<Case> cases;
  const std::regex filter(options.filter);
  const auto offer = [&](const Case& c) {
    if (options.filter.empty() || std::regex_search(describe(c), filter)) cases.push_back(c);
  };
  for (Index n = 0; n < std::min(wanted, whole); ++n)
    offer(at(matrix(), n * whole / std::min(wanted, whole)));
  for (Index n = whole; n < wanted; ++n) offer(random_case(options.seed, n - whole));
  return cases;
}

void add_report(const CaseReport& report, Totals* totals) {
  ++totals->cases;
  if (!report.why.empty()) totals->failures.push_back({report.name, report.why});
  for (std::size_t n = 0; n < report.variants.size(); ++n) {
    const VariantReport& own = report.variants[n];
    Tally& tally = totals->variants[n];
    if (!own.ran) continue;
    ++tally.cases;
    tally.failed += own.verdict.ok() ? 0 : 1;
    tally.bits_checked += own.bits_checked ? 1 : 0;
    tally.bits_differ += own.bits_equal ? 0 : 1;
    tally.worst_absolute = std::max(tally.worst_absolute, own.verdict.worst_absolute);
    tally.worst_relative = std::max(tally.worst_relative, own.verdict.worst_relative);
  }
}

std::string bits_text(const Tally& tally) {
  if (tally.bits_checked == 0) return "-";
  if (tally.bits_differ == 0) return std::to_string(tally.bits_checked) + " equal";
  return std::to_string(tally.bits_differ) + " of " + std::to_string(tally.bits_checked) +
         " differ";
}

void print_table(const Totals& totals, std::ostream& out) {
  using tools::Align;
  tools::Table table({{"variant", Align::kRight},
                      {"name", Align::kLeft},
                      {"cases", Align::kRight},
                      {"failed", Align::kRight},
                      {"worst abs", Align::kRight},
                      {"worst rel", Align::kRight},
                      {"bits", Align::kRight}});
  for (const Tally& t : totals.variants) {
    if (t.cases == 0) continue;
    table.add({std::to_string(t.info->number), t.info->name, std::to_string(t.cases),
               std::to_string(t.failed), tools::scientific(t.worst_absolute),
               tools::scientific(t.worst_relative), bits_text(t)});
  }
  table.print(out);
  out << totals.cases << " cases, " << totals.failures.size() << " failed\n";
  for (const Failure& failure : totals.failures) {
    const std::string id = failure.name.substr(0, failure.name.find(' '));
    out << "FAILED " << failure.name << "\n  " << failure.why
        << "\n  again: tilewise verify --filter '^" << id << " '\n";
  }
}

nlohmann::ordered_json as_json(const Totals& totals) {
  nlohmann::ordered_json document;
  document["backend"] = on_cuda() ? "cuda" : "cpu";
  document["cases"] = totals.cases;
  document["failed"] = totals.failures.size();
  document["variants"] = nlohmann::ordered_json::array();
  for (const Tally& t : totals.variants) {
    if (t.cases == 0) continue;
    document["variants"].push_back({{"variant", t.info->number},
                                    {"name", t.info->name},
                                    {"cases", t.cases},
                                    {"failed", t.failed},
                                    {"worst_absolute_error", t.worst_absolute},
                                    {"worst_relative_error", t.worst_relative},
                                    {"bit_checks", t.bits_checked},
                                    {"bit_differences", t.bits_differ}});
  }
  document["failures"] = nlohmann::ordered_json::array();
  for (const Failure& f : totals.failures)
    document["failures"].push_back({{"case", f.name}, {"why", f.why}});
  return document;
}

int default_threads() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int check_options(const VerifyOptions& options, std::ostream& err) {
  if (options.backend != "cpu" && options.backend != "cuda") {
    err << "--backend " << options.backend << ": wanted cpu or cuda\n";
    return 2;
  }
  if (options.backend == "cuda" && !cuda_usable()) {
    err << "--backend cuda: " << why_no_cuda() << '\n';
    return 2;
  }
  if (options.cases < 0) {
    err << "--cases " << options.cases << ": wanted 0 (all) or more\n";
    return 2;
  }
  try {
    const std::regex filter(options.filter);
  } catch (const std::regex_error& error) {
    err << "--filter " << options.filter << ": " << error.what() << '\n';
    return 2;
  }
  return 0;
}

}  // namespace

int run_verify(const VerifyOptions& options, std::ostream& out, std::ostream& err) {
  if (const int bad = check_options(options, err); bad != 0) return bad;
  const std::vector<Case> cases = chosen_cases(options);
  if (cases.empty()) {
    err << "--filter " << options.filter << ": no case matches\n";
    return 2;
  }
  use_backend(options.backend == "cuda" ? Backend::kCuda : Backend::kCpu);
  Totals totals;
  for (const VariantInfo& info : variants()) {
    totals.variants.emplace_back();
    totals.variants.back().info = &info;
  }
  const int threads = options.threads > 0 ? options.threads : default_threads();
  {
    tools::Progress progress(err, "verify", static_cast<std::int64_t>(cases.size()));
    const auto show = [&](Index done, const Case& c) { progress.update(done, c.id); };
    // With a device nearly all time goes to the oracle and the emulation of a case, on one thread.
    const auto reports =
        on_cuda() ? run_cases(cases, threads, 1, show) : run_cases(cases, 1, threads, show);
    for (const CaseReport& report : reports) add_report(report, &totals);
  }
  if (options.json) {
    out << as_json(totals).dump(2) << '\n';
  } else {
    print_table(totals, out);
  }
  return totals.failures.empty() ? 0 : 1;
}

}  // namespace tilewise::verify
