// `tilewise bench`: limits, medians, operation counts, and the documents it writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>

#include "bench/bench.h"
#include "bench/peak_kernels.h"
#include "bench/report.h"

namespace tilewise::bench {
namespace {

constexpr double kShort = 0.001;  // seconds of a measurement that need not be exact

Shape small_shape() {
  Shape shape;
  shape.q_heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 32;
  shape.kv_len = 64;
  return shape;
}

Result sample_result(const std::string& name, LimitKind kind, double share) {
  const Row row{name, small_shape(), make_attention};
  return {row,  {2, "a<b", true, ""}, {2.0, 1.0, 3.0}, 123.456789, 45.6, kind, {100.0, 90.0, 110.0},
          share};
}

Report sample_report() {
  Report report{
      "cpu", "9.8.7",       "some_isa", {"Some & CPU", 2, {{1, "Data", 32 << 10}}, {"fma"}},
      2,     {7, 0.1, 0.1}, {}};
  report.results.push_back(sample_result("prefill/fp32/d64/full", LimitKind::kFma, 0.75));
  report.results.push_back(sample_result("decode/bf16/kv64/paged16", LimitKind::kRead, 1.1));
  return report;
}

int count_of(const std::string& text, const std::string& what) {
  int count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(TimedOnThreads, RunsEveryIndexOnceAndWaitsForTheSlowest) {
  std::atomic<int> sum{0};
  const double seconds = timed_on_threads(3, [&](int index) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10 * index));
    sum += 1 << index;
  });
  EXPECT_EQ(sum, 7);
  EXPECT_GE(seconds, 0.020);
}

TEST(MeasureLimit, FindsEveryLimitOfThisMachine) {
  const Tensor a(TW_DTYPE_FP32, 1 << 18, 1);
  const Tensor b(TW_DTYPE_FP32, 1 << 18, 2);
  EXPECT_GT(measure_limit(LimitKind::kFma, 1, kShort, {}, {}), 0.5);
  EXPECT_GT(measure_limit(LimitKind::kRead, 1, kShort, a.range(), {}), 0.1);
  EXPECT_GT(measure_limit(LimitKind::kCopy, 1, kShort, a.range(), b.range()), 0.1);
  if (amx_usable()) {
    EXPECT_GT(measure_limit(LimitKind::kAmx, 1, kShort, {}, {}), 10.0);
  }
}

TEST(MeasureLimit, CopiesTheWholeSource) {
  const Tensor a(TW_DTYPE_FP32, 5000, 1);
  const Tensor b(TW_DTYPE_FP32, 5000, 2);
  measure_limit(LimitKind::kCopy, 2, kShort, a.range(), b.range());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.range().bytes), 0);
}

TEST(RunFma, CountsTwoOperationsALane) {
  const double one = run_fma(1);
  EXPECT_EQ(run_fma(1000), 1000.0 * one);
  EXPECT_EQ(static_cast<int>(one) % 24, 0);  // twelve chains
}

TEST(SpreadOf, IsTheMiddleAndTheEnds) {
  const Spread odd = spread_of({3.0, 1.0, 2.0});
  EXPECT_EQ(odd.median, 2.0);
  EXPECT_EQ(odd.min, 1.0);
  EXPECT_EQ(odd.max, 3.0);
  EXPECT_EQ(spread_of({4.0, 1.0, 3.0, 2.0}).median, 2.5);
}

TEST(Tensor, HoldsValuesOfItsTypeBetweenMinusOneAndOne) {
  const Tensor fp32(TW_DTYPE_FP32, 1000, 1);
  const Tensor bf16(TW_DTYPE_BF16, 1000, 1);
  const Tensor fp16(TW_DTYPE_FP16, 1000, 1);
  for (int i = 0; i < 1000; ++i) {
    const float exact = static_cast<const float*>(fp32.data())[i];
    ASSERT_TRUE(exact >= -1.0F && exact < 1.0F);
    // The 16-bit tensors of one seed hold the same values, cut to 7 and 10 bits after the leading
    // one.
    std::uint32_t bits = 0;
    std::memcpy(&bits, &exact, sizeof bits);
    ASSERT_EQ(static_cast<const std::uint16_t*>(bf16.data())[i], bits >> 16);
    const std::uint16_t half = static_cast<const std::uint16_t*>(fp16.data())[i];
    const float value =
        std::ldexp(static_cast<float>(half & 0x3FF) / 1024.0F + 1.0F, ((half >> 10) & 31) - 15);
    if ((half & 0x7FFF) != 0) {
      ASSERT_NEAR(half >> 15 ? -value : value, exact, std::abs(exact) * 0x1p-10F);
    }
  }
}

TEST(AttentionWorkload, CountsCausalPromptsHalf) {
  Shape shape = small_shape();
  shape.q_len = shape.kv_len = 64;
  EXPECT_EQ(make_attention(shape, 1)->flops(), 4.0 * 64 * 64 * 4 * 32);
  shape.causal = true;
  EXPECT_EQ(make_attention(shape, 1)->flops(), 2.0 * 64 * 64 * 4 * 32);
}

TEST(AttentionWorkload, CountsCacheQueriesAndOutputOnce) {
  Shape shape = small_shape();
  shape.dtype = TW_DTYPE_BF16;
  EXPECT_EQ(make_attention(shape, 1)->bytes(), 2.0 * (2 * 64 * 2 * 32 + 2 * 4 * 32));
  EXPECT_GE(make_attention(shape, 1)->source().bytes, 2U * 2 * 64 * 2 * 32);
}

TEST(AllRows, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Row& row : all_rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(MeasureRow, RunsEveryLayoutAndType) {
  for (const tw_dtype dtype : {TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32}) {
    for (const std::int32_t page_size : {0, 16}) {
      for (const bool head_major : {false, true}) {
        Shape shape = small_shape();
        shape.dtype = dtype;
        shape.page_size = page_size;
        shape.head_major = head_major;
        const Result result = measure_row({"row", shape, make_attention}, 2, {3, 0.0, 0.0});
        EXPECT_GT(result.share, 0.0);
        EXPECT_LE(result.ms.min, result.ms.median);
        EXPECT_LE(result.ms.median, result.ms.max);
        EXPECT_EQ(result.limit_kind, LimitKind::kRead);
        EXPECT_TRUE(result.variant.usable);
      }
    }
  }
}

TEST(MeasureRow, RunsThePrepStep) {
  Shape shape = small_shape();
  shape.q_len = shape.kv_len = 48;
  const Result result = measure_row({"row", shape, make_qk_prep}, 1, {3, 0.0, 0.0});
  EXPECT_GT(result.gb_s, 0.0);
  EXPECT_EQ(result.limit_kind, LimitKind::kCopy);
}

TEST(Report, JsonHasEveryKeyOfARow) {
  const auto document = to_json(sample_report());
  EXPECT_EQ(document["format"], "tilewise-bench-1");
  EXPECT_EQ(document["machine"]["caches"][0]["bytes"], 32 << 10);
  const auto& row = document["rows"][0];
  for (const char* key : {"name", "backend", "variant", "dtype", "shape", "ms_median", "ms_min",
                          "ms_max", "gflops", "gb_s", "limit", "share"}) {
    EXPECT_TRUE(row.contains(key)) << key;
  }
  EXPECT_EQ(row["gflops"], 123.46);  // five digits
  EXPECT_EQ(row["limit_unit"], "GFLOP/s");
  EXPECT_EQ(document["rows"][1]["limit_unit"], "GB/s");
}

TEST(Report, TableNamesEveryRow) {
  std::ostringstream out;
  print_table(sample_report(), out);
  EXPECT_THAT(out.str(), testing::HasSubstr("prefill/fp32/d64/full"));
  EXPECT_THAT(out.str(), testing::HasSubstr("75.0 %"));
}

TEST(Plot, DrawsABarForEveryRowAndEscapesText) {
  std::ostringstream out;
  write_svg(sample_report(), out);
  const std::string svg = out.str();
  EXPECT_EQ(count_of(svg, "class=\"bar\""), 2);
  EXPECT_THAT(svg, testing::HasSubstr("Some &amp; CPU"));
  EXPECT_THAT(svg, testing::HasSubstr(">120 %<"));  // the axis reaches past a share of 1.1
  EXPECT_THAT(svg, testing::EndsWith("</svg>\n"));
}

TEST(RunBench, NamesTheOptionThatItCannotMeet) {
  std::ostringstream out;
  std::ostringstream err;
  BenchOptions options;
  options.backend = "cuda";
  EXPECT_EQ(run_bench(options, out, err), 2);
  EXPECT_THAT(err.str(), testing::HasSubstr("--backend"));

  options = BenchOptions();
  options.filter = "no such row";
  EXPECT_EQ(run_bench(options, out, err), 2);
  EXPECT_THAT(err.str(), testing::HasSubstr("--filter"));

  options = BenchOptions();
  options.out = "/no/such/folder/out.json";
  EXPECT_EQ(run_bench(options, out, err), 2);
  EXPECT_THAT(err.str(), testing::HasSubstr("--out"));
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace tilewise::bench
