// Reads a safetensors file: 8 bytes of header length (little endian), a JSON header, then the data.
// Nothing in the file is believed: lengths, offsets, shapes and types are checked before a tensor
// can be seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::generate {

struct Tensor {
  std::string dtype;  // as the file spells it: "BF16", "F32", ...
  std::vector<std::uint64_t> shape;
  const unsigned char* data;  // only as aligned as the file is
  std::size_t bytes;
};

using TensorMap = std::map<std::string, Tensor, std::less<>>;

// Bytes of one element, 0 for a type that is not known.
std::size_t element_bytes(std::string_view dtype);

// The tensors of a whole file in memory; their data point into `file`. Throws InputError that says
// what is wrong. The tensors must cover the data exactly, without holes or overlap.
TensorMap parse_safetensors(std::string_view file);

// A file mapped into memory, and its tensors for as long as this object lives.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  // Throws InputError if the tensor is missing or has another type or shape.
  const Tensor& get(const std::string& name, std::string_view dtype,
                    const std::vector<std::uint64_t>& shape) const;
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

 private:
  std::string path_;
  void* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  TensorMap tensors_;
};

}  // namespace tilewise::generate
