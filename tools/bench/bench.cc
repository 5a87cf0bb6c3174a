// Runs the rows that the filter picks and writes what was asked for.
#include "bench/bench.h"

#include <fstream>
#include <iostream>
#include <regex>

#include "bench/report.h"
#include "common/library.h"
#include "common/progress.h"

namespace tilewise::bench {
namespace {

constexpr Effort kFull{11, 0.040, 0.020};
constexpr Effort kQuick{3, 0.010, 0.005};

std::vector<Row> picked_rows(const std::string& filter) {
  const std::regex pattern(filter);
  std::vector<Row> rows;
  for (Row& row : all_rows()) {
    if (std::regex_search(row.name, pattern)) rows.push_back(std::move(row));
  }
  return rows;
}

// Opened before the measurement, so that a bad path costs nothing but a message.
bool open_output(const std::string& path, const char* option, std::ofstream* file,
                 std::ostream& err) {
  if (path.empty()) return true;
  file->open(path);
  if (!file->is_open()) err << option << ": cannot write " << path << '\n';
  return file->is_open();
}

}  // namespace

int run_bench(const BenchOptions& options, std::ostream& out, std::ostream& err) {
  if (options.backend != "cpu") {
    err << "--backend: " << options.backend << " is not there yet; this build has cpu\n";
    return 2;
  }
  const std::vector<Row> rows = picked_rows(options.filter);
  if (rows.empty()) {
    err << "--filter: no row matches " << options.filter << "; the rows are\n";
    for (const Row& row : all_rows()) err << "  " << row.name << '\n';
    return 2;
  }
  std::ofstream json_file;
  std::ofstream plot_file;
  if (!open_output(options.out, "--out", &json_file, err)) return 2;
  if (!open_output(options.plot, "--plot", &plot_file, err)) return 2;

  const tools::Library library = tools::read_library();
  Report report{options.backend,
                library.version,
                library.fact("cpu_isa"),
                tools::read_machine(),
                options.threads,
                options.quick ? kQuick : kFull,
                {}};
  if (report.threads == 0) report.threads = report.machine.cores;
  {
    tools::Progress progress(err, "bench", static_cast<std::int64_t>(rows.size()));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      progress.update(static_cast<std::int64_t>(i), rows[i].name);
      report.results.push_back(measure_row(rows[i], report.threads, report.effort));
    }
  }
  const std::string document = to_json(report).dump(2) + "\n";
  if (options.json) {
    out << document;
  } else {
    print_table(report, out);
  }
  if (json_file.is_open()) json_file << document;
  if (plot_file.is_open()) write_svg(report, plot_file);
  return 0;
}

}  // namespace tilewise::bench
