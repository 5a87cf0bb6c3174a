// What the loaded library says about itself, taken apart.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tilewise::tools {

struct Library {
  std::string version;                                     // "0.1.0"
  std::vector<std::pair<std::string, std::string>> facts;  // lines of tw_build_info, in order

  // The value of a line, empty if there is none.
  std::string fact(const std::string& key) const;
};

Library read_library();

// "key: value" lines as pairs; lines without a colon are left out.
std::vector<std::pair<std::string, std::string>> parse_facts(const std::string& text);

}  // namespace tilewise::tools
