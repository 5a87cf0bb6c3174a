// What the commands share: tables, progress, facts of library and machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "common/device.h"
#include "common/library.h"
#include "common/machine.h"
#include "common/progress.h"
#include "common/table.h"
#include "common/variants.h"

namespace tilewise::tools {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCell) {
  Table table({{"name", Align::kLeft}, {"ms", Align::kRight}});
  table.add({"a", "1.5"});
  table.add({"longer", "10.25"});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(),
            "name       ms\n"
            "a         1.5\n"
            "longer  10.25\n");
}

TEST(Table, HasNoTitleLineWithoutTitles) {
  Table table({{"", Align::kLeft}, {"", Align::kLeft}});
  table.add({"only"});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(), "only\n");
}

TEST(NumberFormats, AreFixedOrScientific) {
  EXPECT_EQ(fixed(12.345, 1), "12.3");
  EXPECT_EQ(fixed(-0.5, 0), "-0");
  EXPECT_EQ(scientific(0.0), "0");
  EXPECT_EQ(scientific(0.00123), "1.23e-03");
}

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(48 << 10), "48 KiB");
  EXPECT_EQ(format_bytes(3 << 19), "1.5 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{3} << 40), "3072 GiB");
}

TEST(Progress, PrintsPlainLinesWhereThereIsNoTerminal) {
  std::ostringstream out;
  {
    Progress progress(out, "work", 2);
    progress.update(1, "too soon for a line");
    progress.update(2, "done");
  }
  EXPECT_EQ(out.str(), "work: 2/2  done\n");
}

TEST(Progress, IsSilentWithNothingToDo) {
  std::ostringstream out;
  { Progress(out, "work", 0).update(0, ""); }
  EXPECT_EQ(out.str(), "");
}

TEST(ParseFacts, TakesLinesWithAColon) {
  EXPECT_THAT(
      parse_facts("version: 1.2.3\nnoise\ncpu: a: b\n"),
      testing::ElementsAre(testing::Pair("version", "1.2.3"), testing::Pair("cpu", "a: b")));
}

TEST(Library, VersionsOfNumberAndTextAgree) {
  const Library library = read_library();
  EXPECT_EQ(library.version, library.fact("version"));
  EXPECT_EQ(library.fact("no such fact"), "");
}

TEST(Machine, HasACoreToRunOn) {
  const Machine machine = read_machine();
  EXPECT_GE(machine.cores, 1);
  EXPECT_EQ(machine_json(machine)["cores"], machine.cores);
}

TEST(Device, HasFactsWhereThereIsOne) {
  const DeviceFacts facts = device_facts();
  EXPECT_EQ(facts.name.empty(), !device_usable());
  EXPECT_EQ(facts.sm_count > 0, device_usable());
  EXPECT_EQ(free_device_bytes() > 0, device_usable());
  const int on_the_host = 0;
  EXPECT_FALSE(is_device_pointer(&on_the_host));
}

TEST(Device, MemoryKeepsWhatWasPutThere) {
  if (!device_usable()) GTEST_SKIP() << "no CUDA device";
  const std::vector<std::uint8_t> bytes = {1, 2, 3, 4, 5};
  std::vector<std::uint8_t> back(7);
  const DeviceMemory memory(back.size());
  ASSERT_NE(memory.address(), 0u);
  EXPECT_TRUE(is_device_pointer(reinterpret_cast<const void*>(memory.address())));
  EXPECT_TRUE(memory.fill(9, back.size()));
  EXPECT_TRUE(memory.upload(1, bytes.data(), bytes.size()));
  EXPECT_TRUE(memory.download(back.data(), 0, back.size()));
  EXPECT_THAT(back, testing::ElementsAre(9, 1, 2, 3, 4, 5, 9));
}

TEST(Variants, OnCudaHaveNamesWhereTheBuildHasThem) {
  const bool built = tw_supports(TW_DEVICE_CUDA, TW_DTYPE_BF16, TW_DTYPE_BF16, 64, 64) == 1;
  int usable = 0;
  for (const Variant& variant : list_variants(TW_DTYPE_BF16, TW_DEVICE_CUDA))
    usable += variant.usable ? 1 : 0;
  EXPECT_EQ(usable > 0, built);
}

TEST(Variants, IncludeTheReferenceAndSayWhyOneIsNotUsable) {
  const std::vector<Variant> variants = list_variants(TW_DTYPE_BF16);
  ASSERT_FALSE(variants.empty());
  EXPECT_TRUE(variants[0].usable);
  EXPECT_EQ(variants[0].number, 1);
  EXPECT_THAT(variants[0].name, testing::HasSubstr("reference"));
  for (const Variant& variant : variants) {
    EXPECT_EQ(variant.usable, variant.reason.empty()) << variant.number;
    EXPECT_EQ(variant.usable, !variant.name.empty()) << variant.number;
  }
}

}  // namespace
}  // namespace tilewise::tools
