// Runs a case through every variant of the backend in use that this machine has, and judges each
// against the oracle and against its twin: variants that differ in who computes a chunk must give
// the same bytes.
#pragma once

#include <functional>

#include "verify/backend.h"
#include "verify/compare.h"

namespace tilewise::verify {

struct VariantReport {
  int number = 0;
  bool ran = false;
  bool bits_checked = false, bits_equal = true;
  Verdict verdict;
};

struct CaseReport {
  std::string name;
  bool device_lost = false;  // and no case after it can run
  std::string why;           // first failure with its variant, empty if all is well
  std::vector<VariantReport> variants;
};

CaseReport run_case(const Case& c, int oracle_threads);

// The same for a problem whose values were set by hand.
CaseReport run_problem(const Problem& p, int oracle_threads);

// Cases, `at_once` of them at a time on threads of their own; reports of those that ended, in the
// order of the cases. `done` hears of each, from one thread at a time, with their number so far.
using OnDone = std::function<void(Index, const Case&)>;
std::vector<CaseReport> run_cases(const std::vector<Case>& cases, int at_once, int oracle_threads,
                                  const OnDone& done = nullptr);

}  // namespace tilewise::verify
