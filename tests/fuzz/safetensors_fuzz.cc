// Fuzz target of the safetensors reader: any bytes give tensors that lie inside them, or an
// InputError. What is accepted is read to its last byte, so that a wrong extent shows under
// AddressSanitizer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "generate/error.h"
#include "generate/safetensors.h"

namespace {

unsigned read_all(const tilewise::generate::TensorMap& tensors) {
  unsigned sum = 0;
  for (const auto& entry : tensors) {
    const tilewise::generate::Tensor& tensor = entry.second;
    std::size_t elements = 1;
    for (const std::uint64_t extent : tensor.shape) elements *= extent;
    if (elements * tilewise::generate::element_bytes(tensor.dtype) != tensor.bytes) std::abort();
    for (std::size_t i = 0; i < tensor.bytes; ++i) sum += tensor.data[i];
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    volatile unsigned sum = read_all(
        tilewise::generate::parse_safetensors({reinterpret_cast<const char*>(data), size}));
    static_cast<void>(sum);
  } catch (const tilewise::generate::InputError&) {
    // Refused, as most inputs are.
  }
  return 0;
}
