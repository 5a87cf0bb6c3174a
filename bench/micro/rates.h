// What every micro benchmark reports beside its time.
#pragma once

#include <benchmark/benchmark.h>

#include "bench/workload.h"

namespace tilewise::bench {

// Counters of a call that does `flops` operations on `bytes` bytes, as rates in 10^9 a second of
// wall time.
inline void report_rates(benchmark::State& state, double flops, double bytes) {
  const auto rate = [](double amount) {
    return benchmark::Counter(amount * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  };
  if (flops > 0.0) state.counters["GFLOP/s"] = rate(flops);
  state.counters["GB/s"] = rate(bytes);
}

inline void run(benchmark::State& state, Workload& workload) {
  for (auto turn : state) {
    static_cast<void>(turn);
    workload.run();
  }
  report_rates(state, workload.flops(), workload.bytes());
}

}  // namespace tilewise::bench
