// Runs a case through every variant that this machine has and judges each against the oracle, and
// against its twin: variants that differ in who computes a chunk must give the same bytes.
#pragma once

#include "verify/compare.h"

namespace tilewise::verify {

// Numbers that tw_attention_args.variant takes on the CPU.
enum CpuVariant : int {
  kReference = 1,
  kSimdSelf = 2,
  kSimdSplit = 3,
  kAmxSelf = 4,
  kAmxSplit = 5
};

struct VariantInfo {
  int number;
  const char* name;
  int twin;  // variant whose bytes must be the same; 0: none before it
  bool keeps_float_weights;
  bool required;  // present on every machine
};

const std::vector<VariantInfo>& cpu_variants();

struct VariantReport {
  int number = 0;
  bool ran = false;
  bool bits_checked = false, bits_equal = true;
  Verdict verdict;
};

struct CaseReport {
  std::string name;
  std::string why;  // first failure with its variant, empty if all is well
  std::vector<VariantReport> variants;
};

CaseReport run_case(const Case& c, int oracle_threads);

// The same for a problem whose values were set by hand.
CaseReport run_problem(const Problem& p, int oracle_threads);

}  // namespace tilewise::verify
