// Timing of one row: the limit and the call take turns, so that a drift of the machine meets both.
#pragma once

#include <string>

#include "bench/rows.h"

namespace tilewise::bench {

struct Spread {
  double median, min, max;
};

Spread spread_of(std::vector<double> samples);

// How much to measure: `samples` turns, in each of which the call runs for at least `call_seconds`
// (at least once) and the limit for about `limit_seconds`.
struct Effort {
  int samples;
  double call_seconds, limit_seconds;
};

struct Result {
  Row row;
  tools::Variant variant;
  Spread ms;
  double gflops, gb_s;  // at the median
  LimitKind limit_kind;
  Spread limit;
  double share;  // of the limit's median, in the limit's unit
};

Result measure_row(const Row& row, int threads, const Effort& effort);

}  // namespace tilewise::bench
