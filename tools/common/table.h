// A plain text table: columns as wide as their widest cell, text to the left, numbers to the right.
// Without any title there is no title line.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace tilewise::tools {

enum class Align { kLeft, kRight };

class Table {
 public:
  struct Column {
    std::string title;
    Align align;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column; missing cells stay empty, surplus cells are a fault of the caller.
  void add(std::vector<std::string> cells);
  void print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// `value` with `digits` after the point.
std::string fixed(double value, int digits);

// `value` in scientific form with two digits after the point, "0" for zero.
std::string scientific(double value);

}  // namespace tilewise::tools
