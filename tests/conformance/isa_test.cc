// When ctest runs these tests for one instruction set, that set must be the one in use; where the
// machine lacks it, all tests of the run are skipped rather than repeated for another.
#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cstdlib>
#include <string>

namespace tilewise::tests {
namespace {

std::string wanted_isa() {
  const char* name = std::getenv("TILEWISE_CPU_ISA");
  return name != nullptr ? name : "";
}

bool in_use(const std::string& isa) {
  const std::string info = tw_build_info();
  if (isa == "amx") return info.find("cpu_amx: yes") != std::string::npos;
  return info.find("cpu_isa: " + isa + "\n") != std::string::npos;
}

class IsaEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    if (!wanted_isa().empty() && !in_use(wanted_isa()))
      GTEST_SKIP() << "this machine has no " << wanted_isa();
  }
};

[[maybe_unused]] const testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new IsaEnvironment);

TEST(Isa, IsTheOneThatTheEnvironmentNames) {
  if (wanted_isa().empty()) GTEST_SKIP() << "TILEWISE_CPU_ISA is not set";
  EXPECT_TRUE(in_use(wanted_isa())) << tw_build_info();
}

}  // namespace
}  // namespace tilewise::tests
