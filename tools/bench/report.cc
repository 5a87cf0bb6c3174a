// JSON and table of a benchmark run.
#include "bench/report.h"

#include <cstdlib>
#include <ostream>

#include "common/table.h"

namespace tilewise::bench {
namespace {

using Json = nlohmann::ordered_json;

// Five significant digits: more would be noise, and hard to read.
Json rounded(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.5g", value);
  return std::strtod(text, nullptr);
}

Json shape_json(const Shape& shape) {
  return {
      {"batch", shape.batch},       {"q_heads", shape.q_heads},     {"kv_heads", shape.kv_heads},
      {"head_dim", shape.head_dim}, {"q_len", shape.q_len},         {"kv_len", shape.kv_len},
      {"causal", shape.causal},     {"page_size", shape.page_size}, {"layout", layout_name(shape)}};
}

Json row_json(const std::string& backend, const Result& result) {
  return {{"name", result.row.name},
          {"backend", backend},
          {"variant", result.variant.number},
          {"variant_name", result.variant.name},
          {"dtype", dtype_name(result.row.shape.dtype)},
          {"shape", shape_json(result.row.shape)},
          {"ms_median", rounded(result.ms.median)},
          {"ms_min", rounded(result.ms.min)},
          {"ms_max", rounded(result.ms.max)},
          {"gflops", rounded(result.gflops)},
          {"gb_s", rounded(result.gb_s)},
          {"limit", rounded(result.limit.median)},
          {"limit_min", rounded(result.limit.min)},
          {"limit_max", rounded(result.limit.max)},
          {"limit_name", limit_name(result.limit_kind)},
          {"limit_unit", limit_unit(result.limit_kind)},
          {"share", rounded(result.share)}};
}

}  // namespace

nlohmann::ordered_json to_json(const Report& report) {
  Json rows = Json::array();
  for (const Result& result : report.results) rows.push_back(row_json(report.backend, result));
  return {{"format", "tilewise-bench-1"},
          {"version", report.version},
          {"isa", report.isa},
          {"machine", tools::machine_json(report.machine)},
          {"threads", report.threads},
          {"samples", report.effort.samples},
          {"rows", rows}};
}

void print_table(const Report& report, std::ostream& out) {
  using tools::Align;
  using tools::fixed;
  out << report.machine.cpu << ", " << report.threads
      << (report.threads == 1 ? " thread" : " threads") << ", " << report.isa << ", median of "
      << report.effort.samples << "\n\n";
  tools::Table table({{"row", Align::kLeft},
                      {"variant", Align::kLeft},
                      {"ms", Align::kRight},
                      {"min", Align::kRight},
                      {"max", Align::kRight},
                      {"GFLOP/s", Align::kRight},
                      {"GB/s", Align::kRight},
                      {"limit", Align::kRight},
                      {"of", Align::kLeft},
                      {"share", Align::kRight}});
  for (const Result& result : report.results) {
    table.add({result.row.name,
               result.variant.number == 0 ? "" : std::to_string(result.variant.number),
               fixed(result.ms.median, 3), fixed(result.ms.min, 3), fixed(result.ms.max, 3),
               fixed(result.gflops, 1), fixed(result.gb_s, 1), fixed(result.limit.median, 1),
               std::string(limit_unit(result.limit_kind)) + " " + limit_name(result.limit_kind),
               fixed(100.0 * result.share, 1) + " %"});
  }
  table.print(out);
}

}  // namespace tilewise::bench
