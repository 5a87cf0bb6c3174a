// Reads the machine's description from /proc/cpuinfo and /sys/devices/system/cpu.
#include "common/machine.h"

#include <sched.h>

#include <array>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace tilewise::tools {
namespace {

constexpr std::array<const char*, 19> kFeaturesOfInterest = {
    "sse4_1",   "sse4_2",   "avx",      "fma",      "f16c",         "avx2",        "avx_vnni",
    "avx512f",  "avx512bw", "avx512dq", "avx512vl", "avx512_vbmi2", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "asimd",    "sve",      "bf16"};

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trimmed(line);
}

int usable_cores() {
  const std::size_t processors = usable_processors().size();
  if (processors > 0) return static_cast<int>(processors);
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : static_cast<int>(count);
}

// "32K", "2048K" or "1M" as sysfs writes it.
std::int64_t parse_size(const std::string& text) {
  std::istringstream in(text);
  std::int64_t size = 0;
  char unit = ' ';
  in >> size >> unit;
  return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
}

std::vector<Cache> read_caches() {
  std::vector<Cache> caches;
  for (int index = 0;; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line(folder + "level");
    if (level.empty()) return caches;
    caches.push_back({static_cast<int>(parse_size(level)), first_line(folder + "type"),
                      parse_size(first_line(folder + "size"))});
  }
}

}  // namespace

std::vector<std::size_t> usable_processors() {
  std::vector<std::size_t> processors;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) processors.push_back(i);
  }
  return processors;
}

Machine read_machine() {
  Machine machine{"unknown", usable_cores(), read_caches(), {}};
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> present;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trimmed(line.substr(0, colon));
    const std::string value = trimmed(line.substr(colon + 1));
    if (key == "model name") machine.cpu = value;
    if (key != "flags" && key != "Features") continue;
    std::istringstream words(value);
    for (std::string word; words >> word;) present.insert(word);
  }
  for (const char* feature : kFeaturesOfInterest) {
    if (present.count(feature) > 0) machine.features.emplace_back(feature);
  }
  return machine;
}

nlohmann::ordered_json machine_json(const Machine& machine) {
  auto caches = nlohmann::ordered_json::array();
  for (const Cache& cache : machine.caches) {
    caches.push_back({{"level", cache.level}, {"type", cache.type}, {"bytes", cache.bytes}});
  }
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"caches", caches},
          {"features", machine.features}};
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"B", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::ostringstream out;
  out.precision(4);
  out << value << ' ' << kUnits[unit];
  return out.str();
}

}  // namespace tilewise::tools
