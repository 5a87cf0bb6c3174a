// Copies of a call's arrays in device memory: who lies where, and what is told of writes.
#include <gtest/gtest.h>

#include <numeric>

#include "verify/mirror.h"

namespace tilewise::verify {
namespace {

class MirrorTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!tools::device_usable()) GTEST_SKIP() << "no CUDA device";
    std::iota(host_.begin(), host_.end(), std::uint8_t{0});
  }

  std::vector<std::uint8_t> host_ = std::vector<std::uint8_t>(100);
};

std::uint64_t phase(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 256; }

TEST_F(MirrorTest, KeepsDistancesAndAlignment) {
  Mirror mirror;
  mirror.add_input(host_.data() + 3, 40);
  mirror.add_input(host_.data() + 20, 50);  // overlaps: one copy of both
  mirror.upload();
  const std::uint8_t* copy = mirror.at(host_.data() + 3);
  EXPECT_TRUE(tools::is_device_pointer(copy));
  EXPECT_EQ(phase(copy), phase(host_.data() + 3));
  EXPECT_EQ(mirror.at(host_.data() + 69) - copy, 66);
  EXPECT_EQ(mirror.at(host_.data() + 70), host_.data() + 70) << "of no array";
  EXPECT_EQ(mirror.bring_back(), "");
}

TEST_F(MirrorTest, LeavesDevicePointersAndNullAlone) {
  const tools::DeviceMemory memory(16);
  auto* there = reinterpret_cast<std::uint8_t*>(memory.address());
  Mirror mirror;
  mirror.add_output(there, 16);
  mirror.upload();
  EXPECT_EQ(mirror.at(there), there);
  EXPECT_EQ(mirror.at(static_cast<int*>(nullptr)), nullptr);
}

TEST_F(MirrorTest, BringsBlocksBackWithTheirGuards) {
  const Block block(10, 4, 7);
  Mirror mirror;
  mirror.add(block);
  mirror.add_input(block.data() + 2, 1000);  // begins in the block, which says where it ends
  mirror.upload();
  std::fill_n(block.guarded(), block.guarded_bytes(), std::uint8_t{1});
  EXPECT_EQ(mirror.bring_back(), "");
  EXPECT_TRUE(block.guards_intact());
  EXPECT_TRUE(block.is_all(7));
}

// The host's bytes stand for what a kernel would have changed: they differ from the copy.
TEST_F(MirrorTest, TellsOfChangedInputs) {
  Mirror mirror;
  mirror.add_input(host_.data(), 50);
  mirror.add_output(host_.data() + 50, 50);
  mirror.upload();
  host_[60] = 200;
  EXPECT_EQ(mirror.bring_back(), "");
  EXPECT_EQ(host_[60], 60) << "an output comes back";
  host_[10] = 200;
  EXPECT_EQ(mirror.bring_back(), "wrote into an input");
}

}  // namespace
}  // namespace tilewise::verify
