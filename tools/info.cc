// Gathers the facts once, as JSON; the text form prints the same document.
#include "info.h"

#include <tilewise/tilewise.h>

#include <nlohmann/json.hpp>
#include <ostream>

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

Json variants_json() {
  Json variants = Json::array();
  for (const Variant& variant : list_variants(TW_DTYPE_BF16)) {
    variants.push_back({{"number", variant.number},
                        {"name", variant.name},
                        {"usable", variant.usable},
                        {"reason", variant.reason}});
  }
  return variants;
}

Json gather() {
  const Library library = read_library();
  Json build = Json::object();
  for (const auto& [key, value] : library.facts) build[key] = value;
  return {{"version", library.version},
          {"build", build},
          {"backends", {backend("cpu", TW_DEVICE_CPU), backend("cuda", TW_DEVICE_CUDA)}},
          {"machine", machine_json(read_machine())},
          {"variants", variants_json()}};
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
  heading = "variants";
  for (const Json& variant : info["variants"]) {
    table.add({heading, variant["number"].dump(),
               variant["usable"] ? variant["name"].get<std::string>()
                                 : "not usable: " + variant["reason"].get<std::string>()});
    heading.clear();
  }
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
