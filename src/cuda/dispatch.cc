// The table of compiled kernels, one row for each line of variants.def.
#include "cuda/dispatch.h"

namespace tilewise::cuda {
namespace {

struct Row {
  Body body;
  core::DType type;
  std::int32_t dim;
  LaunchFunction launch;
};

constexpr Body decode = Body::kDecode;  // named as in the manifest
constexpr Body prefill = Body::kPrefill;

#define TW_VARIANT(body, element, dim) \
  {body, core::element::kType, dim, launch_##body<core::Variant<core::element, (dim)>>},
const Row kRows[] = {
#include "cuda/variants.def"
};

}  // namespace

LaunchFunction find_launch(Body body, core::DType type, std::int32_t dim) {
  for (const Row& row : kRows) {
    if (row.body == body && row.type == type && row.dim == dim) return row.launch;
  }
  return nullptr;
}

}  // namespace tilewise::cuda
