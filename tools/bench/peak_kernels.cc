// Highway compiles this unit once for every vector target; the best one is chosen at run time.
#include "bench/peak_kernels.h"

#include <atomic>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tilewise::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide the latency of two multiply-add units and, with the two factors, fit sixteen
// registers. The values converge to b / (1 - a), so no denormal or infinity slows a multiply-add.
float fma_loop(std::int64_t rounds, float a_value, float b_value) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, a_value);
  const auto b = hn::Set(d, b_value);
  // Unlike starts: equal chains would be computed once.
  const auto x = [&](float start) { return hn::Set(d, start * b_value); };
  auto x0 = x(0), x1 = x(1), x2 = x(2), x3 = x(3), x4 = x(4), x5 = x(5);
  auto x6 = x(6), x7 = x(7), x8 = x(8), x9 = x(9), x10 = x(10), x11 = x(11);
  for (std::int64_t i = 0; i < rounds; ++i) {
    x0 = hn::MulAdd(x0, a, b);
    x1 = hn::MulAdd(x1, a, b);
    x2 = hn::MulAdd(x2, a, b);
    x3 = hn::MulAdd(x3, a, b);
    x4 = hn::MulAdd(x4, a, b);
    x5 = hn::MulAdd(x5, a, b);
    x6 = hn::MulAdd(x6, a, b);
    x7 = hn::MulAdd(x7, a, b);
    x8 = hn::MulAdd(x8, a, b);
    x9 = hn::MulAdd(x9, a, b);
    x10 = hn::MulAdd(x10, a, b);
    x11 = hn::MulAdd(x11, a, b);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, hn::Add(hn::Add(x8, x9), hn::Add(x10, x11)))));
}

double operations_per_round() {
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
}

// Reads `streams` equal parts side by side, four vectors at a time from each, then what is left
// over.
std::uint64_t read_loop(const std::byte* data, std::size_t bytes, std::size_t streams) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t step = hn::Lanes(d);
  const std::size_t words = bytes / sizeof(std::uint64_t);
  const std::size_t part = words / streams / (4 * step) * (4 * step);
  const auto* p = reinterpret_cast<const std::uint64_t*>(data);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i < part; i += 4 * step) {
    for (std::size_t stream = 0; stream < streams; ++stream) {
      const std::uint64_t* at = p + stream * part + i;
      s0 = hn::Xor(s0, hn::LoadU(d, at));
      s1 = hn::Xor(s1, hn::LoadU(d, at + step));
      s2 = hn::Xor(s2, hn::LoadU(d, at + 2 * step));
      s3 = hn::Xor(s3, hn::LoadU(d, at + 3 * step));
    }
  }
  std::uint64_t mixed[HWY_MAX_BYTES / sizeof(std::uint64_t)];
  hn::StoreU(hn::Xor(hn::Xor(s0, s1), hn::Xor(s2, s3)), d, mixed);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < step; ++i) word ^= mixed[i];
  for (std::size_t i = streams * part; i < words; ++i) word ^= p[i];
  return word;
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::bench {
namespace {

HWY_EXPORT(fma_loop);
HWY_EXPORT(operations_per_round);
HWY_EXPORT(read_loop);
HWY_EXPORT(target_name);

// Where results go, so that the loops cannot be dropped.
std::atomic<float> float_sink;
std::atomic<std::uint64_t> word_sink;

// Read at run time, so that no multiply-add can be folded.
std::atomic<float> factor{0.999F};
std::atomic<float> addend{0.001F};

}  // namespace

double run_fma(std::int64_t rounds) {
  float_sink = HWY_DYNAMIC_DISPATCH(fma_loop)(rounds, factor, addend);
  return HWY_DYNAMIC_DISPATCH(operations_per_round)() * static_cast<double>(rounds);
}

const char* peak_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

void run_read(const std::byte* data, std::size_t bytes, std::size_t streams) {
  word_sink = HWY_DYNAMIC_DISPATCH(read_loop)(data, bytes, streams);
}

}  // namespace tilewise::bench
#endif
