// `tilewise verify`: every variant of a backend on this machine against the float64 reference.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace tilewise::verify {

struct VerifyOptions {
  std::string backend = "cpu";
  std::string filter;  // regular expression on a case's line; empty: all
  std::int64_t cases =
      0;  // 0: the whole matrix; fewer: spread over it; more: random cases beyond it
  std::uint64_t seed = 1;  // of the random cases
  bool json = false;
  int threads = 0;  // of the reference, on CUDA: cases at once; 0: one per core
};

// 0: all right, 1: a case failed, 2: bad options (said on `err`).
int run_verify(const VerifyOptions& options, std::ostream& out, std::ostream& err);

}  // namespace tilewise::verify
