// What a run of `tilewise bench` leaves: a JSON document (bench/README.md describes it), a table, a
// plot.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "common/machine.h"

namespace tilewise::bench {

struct Report {
  std::string backend;
  std::string version;
  std::string isa;  // vector target that the library uses
  tools::Machine machine;
  int threads;
  Effort effort;
  std::vector<Result> results;
};

nlohmann::ordered_json to_json(const Report& report);
void print_table(const Report& report, std::ostream& out);
void write_svg(const Report& report, std::ostream& out);

}  // namespace tilewise::bench
