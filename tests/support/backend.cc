// The backend that conformance tests run on: TILEWISE_TEST_BACKEND=cuda chooses the first CUDA
// device. Without one all tests are skipped, or fail if TILEWISE_REQUIRE_GPU is set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "verify/backend.h"

namespace tilewise::tests {
namespace {

bool wants_cuda() {
  const char* wanted = std::getenv("TILEWISE_TEST_BACKEND");
  return wanted != nullptr && std::strcmp(wanted, "cuda") == 0;
}

class ChooseBackend : public testing::Environment {
 public:
  void SetUp() override {
    if (!wants_cuda()) return;
    if (verify::cuda_usable()) {
      verify::use_backend(verify::Backend::kCuda);
      return;
    }
    if (std::getenv("TILEWISE_REQUIRE_GPU") != nullptr)
      FAIL() << "TILEWISE_REQUIRE_GPU is set, and " << verify::why_no_cuda();
    std::cout << "not run on CUDA: " << verify::why_no_cuda() << '\n';  // ctest looks for it
    GTEST_SKIP() << verify::why_no_cuda();
  }
};

const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new ChooseBackend);

}  // namespace

// Named by attend.cc, so that the linker takes this file in.
void use_backend_environment() {}

}  // namespace tilewise::tests
