// `tilewise bench`: times the kernels of a backend against the machine's own limits, measured in
// the same run.
#pragma once

#include <iosfwd>
#include <string>

namespace tilewise::bench {

struct BenchOptions {
  std::string backend = "cpu";
  std::string filter;  // regular expression on row names; empty = all
  std::string out;     // JSON file
  std::string plot;    // SVG file
  int threads = 0;     // 0 = one per core
  bool quick = false;  // fewer and shorter samples
  bool json = false;
};

// Exit status: 0, or 2 for an option that cannot be met.
int run_bench(const BenchOptions& options, std::ostream& out, std::ostream& err);

}  // namespace tilewise::bench
