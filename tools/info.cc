// Gathers the facts once, as JSON; the text form prints the same document.
#include "info.h"

#include <tilewise/tilewise.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "common/device.h"
#include "common/library.h"
#include "common/machine.h"
#include "common/table.h"
#include "common/variants.h"

namespace tilewise::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int32_t kLargestDim = 1024;  // well above any that a kernel has

struct NamedType {
  const char* name;
  tw_dtype type;
};
constexpr NamedType kTypes[] = {
    {"bf16", TW_DTYPE_BF16}, {"fp16", TW_DTYPE_FP16}, {"fp32", TW_DTYPE_FP32}};

Json dims_of(tw_device_kind kind, tw_dtype q, tw_dtype kv) {
  Json dims = Json::array();
  for (std::int32_t dim = 1; dim <= kLargestDim; ++dim) {
    if (tw_supports(kind, q, kv, dim, dim) == 1) dims.push_back(dim);
  }
  return dims;
}

Json types_of(tw_device_kind kind) {
  Json types = Json::array();
  for (const NamedType& q : kTypes) {
    for (const NamedType& kv : kTypes) {
      Json dims = dims_of(kind, q.type, kv.type);
      if (!dims.empty())
        types.push_back({{"q", q.name}, {"kv", kv.name}, {"head_dims", std::move(dims)}});
    }
  }
  return types;
}

Json backend(const char* name, tw_device_kind kind) {
  Json types = types_of(kind);
  return {{"name", name}, {"available", !types.empty()}, {"types", std::move(types)}};
}

Json variants_json(tw_device_kind kind) {
  Json variants = Json::array();
  for (const Variant& variant : list_variants(TW_DTYPE_BF16, kind)) {
    variants.push_back({{"number", variant.number},
                        {"name", variant.name},
                        {"usable", variant.usable},
                        {"reason", variant.reason}});
  }
  return variants;
}

bool built_with_cuda() {
  return tw_supports(TW_DEVICE_CUDA, TW_DTYPE_BF16, TW_DTYPE_BF16, 64, 64) == 1;
}

// The device that calls with device_index 0 run on; null without one.
Json device_json() {
  if (!device_usable()) return nullptr;
  const DeviceFacts facts = device_facts();
  return {{"name", facts.name},
          {"compute", fixed(facts.compute / 10.0, 1)},
          {"sm_count", facts.sm_count},
          {"memory_bytes", facts.memory_bytes},
          {"l2_bytes", facts.l2_bytes},
          {"shared_bytes_of_sm", facts.shared_bytes_of_sm},
          {"shared_bytes_of_block", facts.shared_bytes_of_block},
          {"driver", driver_release()},
          {"driver_cuda",
           std::to_string(facts.driver / 1000) + "." + std::to_string(facts.driver % 1000 / 10)}};
}

Json gather() {
  const Library library = read_library();
  Json build = Json::object();
  for (const auto& [key, value] : library.facts) build[key] = value;
  return {{"version", library.version},
          {"build", build},
          {"backends", {backend("cpu", TW_DEVICE_CPU), backend("cuda", TW_DEVICE_CUDA)}},
          {"machine", machine_json(read_machine())},
          {"device", device_json()},
          {"variants", variants_json(TW_DEVICE_CPU)},
          {"cuda_variants", built_with_cuda() ? variants_json(TW_DEVICE_CUDA) : Json::array()}};
}

// "8..512 in steps of 8", or the list if it has no such form.
std::string describe_dims(const Json& dims) {
  const std::int64_t first = dims.front();
  const std::int64_t last = dims.back();
  const auto gaps = static_cast<std::int64_t>(dims.size()) - 1;
  if (gaps > 1 && (last - first) % gaps == 0) {
    const std::int64_t step = (last - first) / gaps;
    bool even = true;
    for (std::size_t i = 0; i < dims.size(); ++i)
      even = even && dims[i] == first + static_cast<std::int64_t>(i) * step;
    if (even)
      return std::to_string(first) + ".." + std::to_string(last) + " in steps of " +
             std::to_string(step);
  }
  return dims.dump();
}

void print_machine(const Json& machine, Table* table) {
  table->add({"machine", "cpu", machine["cpu"]});
  table->add({"", "cores", machine["cores"].dump()});
  for (const Json& cache : machine["caches"]) {
    table->add({"", "L" + cache["level"].dump() + " " + cache["type"].get<std::string>(),
                format_bytes(cache["bytes"].get<std::int64_t>())});
  }
  std::string features;
  for (const Json& feature : machine["features"])
    features += (features.empty() ? "" : " ") + feature.get<std::string>();
  table->add({"", "features", features});
}

void print_device(const Json& device, Table* table) {
  if (device.is_null()) {
    table->add({"device", "", "none"});
    return;
  }
  const auto bytes = [&](const char* key) { return format_bytes(device[key].get<std::int64_t>()); };
  table->add({"device", "name", device["name"]});
  table->add({"", "compute", device["compute"]});
  table->add({"", "SMs", device["sm_count"].dump()});
  table->add({"", "memory", bytes("memory_bytes")});
  table->add({"", "L2", bytes("l2_bytes")});
  table->add(
      {"", "shared memory",
       bytes("shared_bytes_of_sm") + " an SM, " + bytes("shared_bytes_of_block") + " a block"});
  const std::string driver = device["driver"];
  table->add({"", "driver",
              (driver.empty() ? "" : driver + ", ") + "runs CUDA up to " +
                  device["driver_cuda"].get<std::string>()});
}

void print_variants(std::string heading, const Json& variants, Table* table) {
  for (const Json& variant : variants) {
    table->add({heading, variant["number"].dump(),
                variant["usable"] ? variant["name"].get<std::string>()
                                  : "not usable: " + variant["reason"].get<std::string>()});
    heading.clear();
  }
}

void print_text(const Json& info, std::ostream& out) {
  out << "tilewise " << info["version"].get<std::string>() << "\n\n";
  Table table({{"", Align::kLeft}, {"", Align::kLeft}, {"", Align::kLeft}});
  std::string heading = "build";
  for (const auto& fact : info["build"].items()) {
    table.add({heading, fact.key(), fact.value()});
    heading.clear();
  }
  for (const Json& backend : info["backends"]) {
    table.add(
        {"backend", backend["name"], backend["available"] ? "available" : "not in this build"});
    for (const Json& type : backend["types"]) {
      table.add({"", "q " + type["q"].get<std::string>() + ", kv " + type["kv"].get<std::string>(),
                 "head_dim " + describe_dims(type["head_dims"])});
    }
  }
  print_machine(info["machine"], &table);
  print_device(info["device"], &table);
  print_variants("variants", info["variants"], &table);
  print_variants("on CUDA", info["cuda_variants"], &table);
  table.print(out);
}

}  // namespace

int run_info(const InfoOptions& options, std::ostream& out) {
  const Json info = gather();
  if (options.json) {
    out << info.dump(2) << '\n';
  } else {
    print_text(info, out);
  }
  return 0;
}

}  // namespace tilewise::tools
