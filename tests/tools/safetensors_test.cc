// The safetensors reader on files that are right, and on a table of files that are not.
#include "generate/safetensors.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "generate/error.h"

namespace tilewise::generate {
namespace {

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(length >> (8 * i)));
  return file + rest;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\x01'));
}

TEST(Safetensors, ReadsNamesTypesShapesAndPlaces) {
  const std::string file = file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
      R"("none":{"dtype":"I64","shape":[3,0],"data_offsets":[12,12]},)"
      R"("scalar":{"dtype":"U8","shape":[],"data_offsets":[12,13]}}  )",
      13);
  const TensorMap tensors = parse_safetensors(file);
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors.at("b").dtype, "F32");
  EXPECT_EQ(tensors.at("b").shape, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(tensors.at("b").bytes, 8u);
  EXPECT_EQ(tensors.at("b").data - tensors.at("a").data, 4);
  EXPECT_EQ(tensors.at("none").bytes, 0u);
  EXPECT_TRUE(tensors.at("scalar").shape.empty());
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* message;  // part of the error's text
};

std::string one_tensor(const std::string& entry, std::size_t bytes) {
  return file_of("{\"t\":" + entry + "}", bytes);
}

constexpr const char* kGoodEntry = R"({"dtype":"BF16","shape":[2],"data_offsets":[0,4]})";

std::vector<BadFile> files_with_a_bad_header() {
  const std::string good = kGoodEntry;
  return {
      {"Empty", "", "no header length"},
      {"SevenBytes", std::string(7, '\0'), "no header length"},
      {"LengthPastTheEnd", with_length(3, "{}"), "past the end"},
      {"LengthOfAllOnes", with_length(~std::uint64_t{0}, "{}"), "above 100 MB"},
      {"HugeLength", with_length(100'000'001, "{}"), "above 100 MB"},
      {"NoHeader", with_length(0, ""), "not a JSON object"},
      {"ArrayHeader", file_of("[]", 0), "not a JSON object"},
      {"CutHeader", file_of("{\"t\":", 0), "not valid JSON"},
      {"TextAfterHeader", file_of("{} x", 0), "not valid JSON"},
      {"BrokenUtf8", file_of("{\"\xFF\":{}}", 0), "not valid JSON"},
      {"DeepNesting", file_of("{\"t\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0),
       "too deep"},
      {"NameTwice", file_of("{\"t\":" + good + ",\"t\":" + good + "}", 4), "twice"},
      {"FieldTwice",
       one_tensor(R"({"dtype":"BF16","dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4),
       "twice"},
  };
}

std::vector<BadFile> files_with_a_bad_entry() {
  return {
      {"EntryIsNumber", one_tensor("4", 0), "wanted an object"},
      {"ExtraField", one_tensor(R"({"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1})", 1),
       "wanted an object"},
      {"NoDtype", one_tensor(R"({"type":"U8","shape":[],"data_offsets":[0,1]})", 1), "lacks dtype"},
      {"DtypeIsNumber", one_tensor(R"({"dtype":8,"shape":[],"data_offsets":[0,1]})", 1),
       "not a string"},
      {"UnknownDtype", one_tensor(R"({"dtype":"F128","shape":[],"data_offsets":[0,1]})", 1),
       "unknown dtype"},
      {"ShapeIsNumber", one_tensor(R"({"dtype":"U8","shape":1,"data_offsets":[0,1]})", 1),
       "not an array"},
      {"NegativeExtent", one_tensor(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", 1),
       "not negative"},
      {"FractionalExtent", one_tensor(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", 1),
       "not negative"},
      {"NestedExtent", one_tensor(R"({"dtype":"U8","shape":[[]],"data_offsets":[0,1]})", 1),
       "not negative"},
      {"ExtentAbove64Bits",
       one_tensor(R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]})", 1),
       "not negative"},
      {"ProductOverflows",
       one_tensor(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0),
       "overflows"},
      {"ElementSizeOverflows",
       one_tensor(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})", 0),
       "overflows"},
      {"ShapeTooSmall", one_tensor(R"({"dtype":"BF16","shape":[2],"data_offsets":[0,5]})", 5),
       "disagree"},
      {"ShapeTooLarge", one_tensor(R"({"dtype":"BF16","shape":[3],"data_offsets":[0,4]})", 4),
       "disagree"},
      {"OneOffset", one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[0]})", 1),
       "not a pair"},
      {"OffsetsFall", one_tensor(R"({"dtype":"U8","shape":[0],"data_offsets":[1,0]})", 1),
       "do not lie"},
      {"OffsetsPastTheEnd", one_tensor(R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})", 1),
       "do not lie"},
      {"OffsetsWrap",
       one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]})", 1),
       "do not lie"},
      {"NegativeOffset", one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[-1,0]})", 1),
       "not negative"},
  };
}

std::vector<BadFile> files_whose_parts_disagree() {
  return {
      {"Overlap",
       file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
               4),
       "overlap"},
      {"HoleInFront", one_tensor(R"({"dtype":"U8","shape":[1],"data_offsets":[1,2]})", 2),
       "no tensor"},
      {"BytesLeftOver", one_tensor(kGoodEntry, 6), "no tensor"},
      {"MetadataIsArray", file_of(R"({"__metadata__":[]})", 0), "__metadata__"},
      {"MetadataOfNumbers", file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__"},
  };
}

std::vector<BadFile> bad_files() {
  std::vector<BadFile> all = files_with_a_bad_header();
  for (const auto& more : {files_with_a_bad_entry(), files_whose_parts_disagree()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

class BadSafetensors : public testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefusedWithAReason) {
  try {
    parse_safetensors(GetParam().bytes);
    FAIL() << "was accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().message), std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Table, BadSafetensors, testing::ValuesIn(bad_files()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(Safetensors, EveryCutOfAGoodFileIsRefused) {
  const std::string file = file_of(R"({"t":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", 4);
  EXPECT_EQ(parse_safetensors(file).size(), 1u);
  for (std::size_t n = 0; n < file.size(); ++n) {
    EXPECT_THROW(parse_safetensors(std::string_view(file).substr(0, n)), InputError) << n;
  }
}

class SafetensorsOnDisk : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    const std::string path = testing::TempDir() + "tilewise_safetensors_test." +
                             std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
                             testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream(path, std::ios::binary) << bytes;
    paths_.push_back(path);
    return path;
  }
  void TearDown() override {
    for (const std::string& path : paths_) std::remove(path.c_str());
  }

 private:
  std::vector<std::string> paths_;
};

TEST_F(SafetensorsOnDisk, GivesATensorOnlyAsTheCallerExpectsIt) {
  const std::string header = R"({"t":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  const SafetensorsFile file(write(file_of(header + std::string(header.size() % 2, ' '), 4)));
  EXPECT_EQ(file.get("t", "BF16", {2}).bytes, 4u);
  EXPECT_TRUE(file.contains("t"));
  EXPECT_THROW(file.get("u", "BF16", {2}), InputError);
  EXPECT_THROW(file.get("t", "F16", {2}), InputError);
  EXPECT_THROW(file.get("t", "BF16", {1, 2}), InputError);
}

TEST_F(SafetensorsOnDisk, RefusesDataThatIsNotAlignedToItsType) {
  const std::string header = R"({"t":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  const SafetensorsFile file(write(file_of(header + std::string(1 + header.size() % 2, ' '), 4)));
  EXPECT_THROW(file.get("t", "BF16", {2}), InputError);
}

TEST_F(SafetensorsOnDisk, NamesTheFileThatCannotBeRead) {
  EXPECT_THROW(SafetensorsFile(testing::TempDir()), InputError);  // a folder
  EXPECT_THROW(SafetensorsFile("/nonexistent/x.safetensors"), InputError);
  EXPECT_THROW(SafetensorsFile(write("")), InputError);
}

}  // namespace
}  // namespace tilewise::generate
