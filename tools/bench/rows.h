// The rows of `tilewise bench`: which calls it times, each by a name that a filter can pick.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/workload.h"

namespace tilewise::bench {

struct Row {
  std::string name;
  Shape shape;
  std::function<std::unique_ptr<Workload>(const Shape&, std::int32_t threads)> make;
};

std::vector<Row> all_rows();

}  // namespace tilewise::bench
