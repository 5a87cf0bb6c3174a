// What the tools say about the machine they run on: processor, cores, caches, instruction sets.
// Read from Linux's /proc and /sys; what cannot be read stays empty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilewise::tools {

struct Cache {
  int level;
  std::string type;  // "Data", "Instruction" or "Unified"
  std::int64_t bytes;
};

struct Machine {
  std::string cpu;            // model name
  int cores;                  // that this process may use
  std::vector<Cache> caches;  // of the first core
  std::vector<std::string>
      features;  // the flags that matter to the kernels, as the kernel spells them
};

Machine read_machine();

// Numbers of the processors that this process may use, ascending; empty if the system does not say.
std::vector<std::size_t> usable_processors();

// Keys as the fields; bytes as numbers.
nlohmann::ordered_json machine_json(const Machine& machine);

// "48 KiB", "2 MiB": binary units, no fraction where there is none.
std::string format_bytes(std::int64_t bytes);

}  // namespace tilewise::tools
