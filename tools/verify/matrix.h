// The case matrix: every feature alone, every pair of features, and sweeps over types, dims,
// groups, lengths and pages. Made by code from fixed rules, so that a case's id means the same
// problem on every machine.
#pragma once

#include "verify/case.h"

namespace tilewise::verify {

// A choice that differs from the plain case. Two features of one axis exclude each other.
struct Feature {
  const char* axis;
  const char* name;
  void (*apply)(Case&);
};

const std::vector<Feature>& features();

// Shapes that features are tried on: decode, a ragged mix of both row classes, prefill, a few
// drafted rows.
std::vector<Case> base_cases();

// All cases, settled, with ids m0000, m0001, ...
const std::vector<Case>& matrix();

// Case n of an endless series in which every choice is drawn.
Case random_case(std::uint64_t seed, Index n);

}  // namespace tilewise::verify
