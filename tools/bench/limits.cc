// Measurement of the limits. Each thread works on its own contiguous part, in whole cache lines.
#include "bench/limits.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "bench/peak_kernels.h"
#include "common/machine.h"

namespace tilewise::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLine = 64;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// A processor for each of `threads` threads where there is exactly one for each: a scheduler may
// leave young threads on one processor for longer than a measurement takes, which would halve a
// limit. With fewer threads than processors it is left to the scheduler, which knows which of them
// share a core.
std::vector<std::size_t> placement(int threads) {
  std::vector<std::size_t> processors = tools::usable_processors();
  if (processors.size() != static_cast<std::size_t>(threads)) processors.clear();
  return processors;
}

// Moves the calling thread. Without the right to do so it stays where it is.
void run_on(std::size_t processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Part `index` of `parts` of `range`.
MemoryRange part_of(MemoryRange range, int index, int parts) {
  const std::size_t lines = range.bytes / kLine;
  const auto i = static_cast<std::size_t>(index);
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t begin = lines * i / n * kLine;
  const std::size_t end = lines * (i + 1) / n * kLine;
  return {range.data + begin, end - begin};
}

// Work of one thread: `repeats` rounds or passes.
struct Loop {
  std::function<void(int thread, std::int64_t repeats)> run;
  double amount;  // operations or bytes of one repeat on all threads
};

Loop arithmetic_loop(double (*run)(std::int64_t), int threads) {
  constexpr std::int64_t kRounds = 10000;
  const double one_thread = run(kRounds);
  return {[run](int, std::int64_t repeats) { run(repeats * kRounds); }, one_thread * threads};
}

Loop read_loop(MemoryRange source, int threads, std::size_t streams) {
  return {[source, threads, streams](int thread, std::int64_t repeats) {
            const MemoryRange part = part_of(source, thread, threads);
            for (std::int64_t i = 0; i < repeats; ++i) run_read(part.data, part.bytes, streams);
          },
          static_cast<double>(source.bytes)};
}

Loop copy_loop(MemoryRange source, MemoryRange target, int threads) {
  const std::size_t bytes = std::min(source.bytes, target.bytes);
  source.bytes = bytes;
  target.bytes = bytes;
  return {[source, target, threads](int thread, std::int64_t repeats) {
            const MemoryRange from = part_of(source, thread, threads);
            const MemoryRange to = part_of(target, thread, threads);
            for (std::int64_t i = 0; i < repeats; ++i) std::memcpy(to.data, from.data, from.bytes);
          },
          2.0 * static_cast<double>(bytes)};
}

// The ways of reaching a limit; the best one counts. Which way of reading is faster depends on how
// the memory lies in cache, pages and banks.
std::vector<Loop> loops_of(LimitKind kind, int threads, MemoryRange source, MemoryRange target) {
  switch (kind) {
    case LimitKind::kFma:
      return {arithmetic_loop(run_fma, threads)};
    case LimitKind::kAmx:
      return {arithmetic_loop(run_amx, threads)};
    case LimitKind::kRead:
      return {read_loop(source, threads, 1), read_loop(source, threads, 4)};
    case LimitKind::kCopy:
      break;
  }
  return {copy_loop(source, target, threads)};
}

double rate_of(const Loop& loop, int threads, double seconds) {
  const auto timed = [&](std::int64_t repeats) {
    return timed_on_threads(threads, [&](int thread) { loop.run(thread, repeats); });
  };
  // One repeat says how many fill the time; it also warms caches, frequency and page tables.
  const double one = std::max(timed(1), 1e-7);
  const auto repeats = std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds / one));
  return loop.amount * static_cast<double>(repeats) / timed(repeats) * 1e-9;
}

}  // namespace

const char* limit_name(LimitKind kind) {
  switch (kind) {
    case LimitKind::kFma:
      return "fma_fp32";
    case LimitKind::kAmx:
      return "amx_bf16";
    case LimitKind::kRead:
      return "read";
    case LimitKind::kCopy:
      break;
  }
  return "copy";
}

const char* limit_unit(LimitKind kind) {
  return kind == LimitKind::kFma || kind == LimitKind::kAmx ? "GFLOP/s" : "GB/s";
}

double timed_on_threads(int threads, const std::function<void(int)>& body) {
  const std::vector<std::size_t> processors = placement(threads);
  std::atomic<int> ready{0};
  std::vector<Clock::time_point> begins(static_cast<std::size_t>(threads));
  std::vector<Clock::time_point> ends(static_cast<std::size_t>(threads));
  const auto work = [&](std::size_t index) {
    if (!processors.empty()) run_on(processors[index]);
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    begins[index] = Clock::now();
    body(static_cast<int>(index));
    ends[index] = Clock::now();
  };
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < begins.size(); ++i) workers.emplace_back(work, i);
  for (std::thread& thread : workers) thread.join();
  return seconds_between(*std::min_element(begins.begin(), begins.end()),
                         *std::max_element(ends.begin(), ends.end()));
}

double measure_limit(LimitKind kind, int threads, double seconds, MemoryRange source,
                     MemoryRange target) {
  const std::vector<Loop> loops = loops_of(kind, threads, source, target);
  double best = 0.0;
  for (const Loop& loop : loops) {
    best = std::max(best, rate_of(loop, threads, seconds / static_cast<double>(loops.size())));
  }
  return best;
}

}  // namespace tilewise::bench
