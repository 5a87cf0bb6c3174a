// Timing loops and the figures that follow from them.
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace tilewise::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Milliseconds of one of `calls` calls.
double timed_ms(Workload& workload, int calls) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) workload.run();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count() / calls;
}

// Calls that fill `seconds`, found by doubling so that a first slow call does not decide.
int calls_for(Workload& workload, double seconds) {
  workload.run();
  int calls = 1;
  for (;;) {
    const double total = timed_ms(workload, calls) * calls * 1e-3;
    if (total >= seconds) return calls;
    const double wanted = total > 0.0 ? std::ceil(calls * seconds / total) : 2.0 * calls;
    calls = static_cast<int>(std::min(std::max(wanted, calls + 1.0), 4.0 * calls));
  }
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median =
      samples.size() % 2 == 1 ? samples[middle] : 0.5 * (samples[middle - 1] + samples[middle]);
  return {median, samples.front(), samples.back()};
}

Result measure_row(const Row& row, int threads, const Effort& effort) {
  const std::unique_ptr<Workload> workload = row.make(row.shape, threads);
  const LimitKind kind = workload->limit();
  const int calls = calls_for(*workload, effort.call_seconds);
  std::vector<double> ms;
  std::vector<double> limits;
  for (int i = 0; i < effort.samples; ++i) {
    limits.push_back(
        measure_limit(kind, threads, effort.limit_seconds, workload->source(), workload->target()));
    ms.push_back(timed_ms(*workload, calls));
  }
  Result result{row, workload->variant(), spread_of(ms), 0.0, 0.0, kind, spread_of(limits), 0.0};
  result.gflops = workload->flops() / result.ms.median * 1e-6;
  result.gb_s = workload->bytes() / result.ms.median * 1e-6;
  const bool memory = kind == LimitKind::kRead || kind == LimitKind::kCopy;
  result.share = (memory ? result.gb_s : result.gflops) / result.limit.median;
  return result;
}

}  // namespace tilewise::bench
