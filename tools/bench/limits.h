// The machine's limits, measured on the same number of threads as the kernels: multiply-add peak,
// tile peak, and how fast given memory can be read or copied.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tilewise::bench {

enum class LimitKind { kFma, kAmx, kRead, kCopy };

// "fma_fp32", "amx_bf16", "read", "copy".
const char* limit_name(LimitKind kind);

// "GFLOP/s" or "GB/s".
const char* limit_unit(LimitKind kind);

struct MemoryRange {
  std::byte* data;
  std::size_t bytes;
};

// Starts `threads` threads at the same moment, gives each its index, and returns the seconds from
// the first start to the last end.
double timed_on_threads(int threads, const std::function<void(int)>& body);

// One measurement of a limit, of about `seconds`, in GFLOP/s or GB/s (10^9). kRead reads `source`;
// kCopy copies `source` to `target` (as many bytes as both have) and counts bytes read plus bytes
// written. Both are passed over again and again, so what fits a cache is measured from there, as a
// kernel that is called again and again finds it.
double measure_limit(LimitKind kind, int threads, double seconds, MemoryRange source,
                     MemoryRange target);

}  // namespace tilewise::bench
