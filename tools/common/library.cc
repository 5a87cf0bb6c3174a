// Parsing of tw_build_info and tw_version.
#include "common/library.h"

#include <tilewise/tilewise.h>

#include <sstream>

namespace tilewise::tools {

std::vector<std::pair<std::string, std::string>> parse_facts(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(": ");
    if (colon != std::string::npos)
      facts.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return facts;
}

std::string Library::fact(const std::string& key) const {
  for (const auto& [name, value] : facts) {
    if (name == key) return value;
  }
  return "";
}

Library read_library() {
  const uint32_t version = tw_version();
  return {std::to_string(version >> 16) + "." + std::to_string((version >> 8) & 0xFFU) + "." +
              std::to_string(version & 0xFFU),
          parse_facts(tw_build_info())};
}

}  // namespace tilewise::tools
