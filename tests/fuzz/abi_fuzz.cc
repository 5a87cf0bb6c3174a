// libFuzzer target for the C ABI: argument checks on raw bytes, and execution on small shapes with
// hostile numbers in strides, counts, flags and in the arrays that only the device reads. Every
// array is a heap block of exactly the extent that the arguments state, so a report of
// AddressSanitizer or UBSan is a fault of the library.
#include "tests/fuzz/abi_attention.h"
#include "tests/fuzz/abi_ops.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace fuzz = tilewise::fuzz;
  fuzz::Bytes in(data, size);
  switch (in.below(12)) {
    case 0:
      fuzz::query_raw(in);
      break;
    case 1:
      fuzz::run_rope(in);
      break;
    case 2:
      fuzz::run_append(in);
      break;
    case 3:
      fuzz::run_prep(in);
      break;
    case 4:
      fuzz::run_merge(in);
      break;
    case 5:
      fuzz::run_gate(in);
      break;
    case 6:
      fuzz::run_elementwise(in);
      break;
    default:
      fuzz::run_attention(in);
  }
  return 0;
}
