// See safetensors.h. All arithmetic on numbers from the file is done on unsigned 64-bit values with
// a check before each product or sum.
#include "generate/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "generate/error.h"

namespace tilewise::generate {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
// The format's own limit: a larger header is an attack on the JSON parser, not a model.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// {"name": {"shape": [..]}}: objects and arrays nest three deep and no deeper.
constexpr int kMaxDepth = 3;

[[noreturn]] void fail(const std::string& what) { throw InputError("safetensors: " + what); }

std::uint64_t read_length(std::string_view file) {
  if (file.size() < kLengthBytes) fail("the file has no header length");
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  }
  if (value > kMaxHeaderBytes) fail("header length " + std::to_string(value) + " is above 100 MB");
  if (value > file.size() - kLengthBytes) {
    fail("header length " + std::to_string(value) + " is past the end of the file");
  }
  return value;
}

// Parses the header; refuses deep nesting and a key given twice (the parser would keep the last
// one).
json parse_header(std::string_view text) {
  if (text.empty() || text.front() != '{') fail("the header is not a JSON object");
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) fail("the header nests too deep");
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(value.get_ref<const std::string&>()).second) {
      fail("the header names " + value.dump() + " twice");
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    fail(std::string("the header is not valid JSON: ") + error.what());
  }
}

std::uint64_t as_size(const json& value, const std::string& name, const char* field) {
  if (!value.is_number_unsigned()) {
    fail(name + ": " + field + " holds " + value.dump().substr(0, 40) +
         ", wanted a whole number that is not negative");
  }
  return value.get<std::uint64_t>();
}

const json& member(const json& entry, const std::string& name, const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end()) fail(name + ": the header lacks " + field);
  return *found;
}

std::uint64_t bytes_of_shape(const Tensor& tensor, const std::string& name) {
  std::uint64_t product = element_bytes(tensor.dtype);
  if (product == 0) fail(name + ": unknown dtype " + tensor.dtype.substr(0, 40));
  for (const std::uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(product, extent, &product)) fail(name + ": the shape overflows");
  }
  return product;
}

Tensor read_entry(const std::string& name, const json& entry, std::string_view data) {
  if (!entry.is_object() || entry.size() != 3) {
    fail(name + ": wanted an object of dtype, shape and data_offsets");
  }
  Tensor tensor{};
  const json& dtype = member(entry, name, "dtype");
  if (!dtype.is_string()) fail(name + ": dtype is not a string");
  tensor.dtype = dtype.get<std::string>();
  const json& shape = member(entry, name, "shape");
  if (!shape.is_array()) fail(name + ": shape is not an array");
  for (const json& extent : shape) tensor.shape.push_back(as_size(extent, name, "shape"));
  const json& offsets = member(entry, name, "data_offsets");
  if (!offsets.is_array() || offsets.size() != 2) fail(name + ": data_offsets is not a pair");
  const std::uint64_t begin = as_size(offsets[0], name, "data_offsets");
  const std::uint64_t end = as_size(offsets[1], name, "data_offsets");
  if (begin > end || end > data.size()) {
    fail(name + ": data_offsets " + offsets.dump() + " do not lie in the file's " +
         std::to_string(data.size()) + " bytes of data");
  }
  if (bytes_of_shape(tensor, name) != end - begin) {
    fail(name + ": shape and dtype disagree with the " + std::to_string(end - begin) +
         " bytes of data_offsets");
  }
  tensor.data = reinterpret_cast<const unsigned char*>(data.data()) + begin;
  tensor.bytes = end - begin;
  return tensor;
}

void check_metadata(const json& metadata) {
  if (!metadata.is_object()) fail("__metadata__ is not an object");
  for (const json& value : metadata) {
    if (!value.is_string()) fail("__metadata__ holds something other than strings");
  }
}

void check_cover(const TensorMap& tensors, std::string_view data) {
  std::vector<std::pair<const unsigned char*, std::size_t>> ranges;
  ranges.reserve(tensors.size());
  for (const auto& entry : tensors) ranges.emplace_back(entry.second.data, entry.second.bytes);
  std::sort(ranges.begin(), ranges.end());
  const auto* next = reinterpret_cast<const unsigned char*>(data.data());
  const auto* end = next + data.size();
  for (const auto& range : ranges) {
    if (range.first < next) fail("two tensors overlap");
    if (range.first > next) fail("some bytes of the data belong to no tensor");
    next += range.second;
  }
  if (next != end) fail("some bytes at the end of the data belong to no tensor");
}

std::string shape_text(const std::vector<std::uint64_t>& shape) { return json(shape).dump(); }

}  // namespace

std::size_t element_bytes(std::string_view dtype) {
  struct Entry {
    std::string_view dtype;
    std::size_t bytes;
  };
  static constexpr Entry kEntries[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8},
  };
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry.bytes;
  }
  return 0;
}

TensorMap parse_safetensors(std::string_view file) {
  const std::uint64_t header_bytes = read_length(file);
  const json header = parse_header(file.substr(kLengthBytes, header_bytes));
  const std::string_view data = file.substr(kLengthBytes + header_bytes);
  TensorMap tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(entry);
    } else {
      tensors.emplace(name, read_entry(name, entry, data));
    }
  }
  check_cover(tensors, data);
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw InputError(path + ": " + std::strerror(errno));
  struct stat info {};
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    mapping_bytes_ = static_cast<std::size_t>(info.st_size);
    // Populated at once: page faults in the middle of the first token would cost more.
    mapping_ = ::mmap(nullptr, mapping_bytes_, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (mapping_ == MAP_FAILED) mapping_ = nullptr;
  }
  ::close(file);
  if (mapping_ == nullptr) throw InputError(path + ": cannot be mapped into memory");
  try {
    tensors_ = parse_safetensors({static_cast<const char*>(mapping_), mapping_bytes_});
  } catch (const InputError& error) {
    ::munmap(mapping_, mapping_bytes_);
    throw InputError(path + ": " + error.what());
  }
}

SafetensorsFile::~SafetensorsFile() { ::munmap(mapping_, mapping_bytes_); }

const Tensor& SafetensorsFile::get(const std::string& name, std::string_view dtype,
                                   const std::vector<std::uint64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw InputError(path_ + ": there is no tensor " + name);
  const Tensor& tensor = found->second;
  if (tensor.dtype != dtype || tensor.shape != shape) {
    throw InputError(path_ + ": " + name + " is " + tensor.dtype + shape_text(tensor.shape) +
                     ", wanted " + std::string(dtype) + shape_text(shape));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (address % element_bytes(dtype) != 0) {
    throw InputError(path_ + ": " + name + " is not aligned to its elements");
  }
  return tensor;
}

}  // namespace tilewise::generate
