// The C boundary: versioned structs, every refusal of tw_attention and of the small calls with the
// text that names the argument, and hostile numbers. Each case starts from a valid call and breaks
// one thing.
#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

template <class T>
T sized() {
  T s{};
  s.struct_size = sizeof(T);
  return s;
}

// A small valid call: 2 requests of 3 rows, 4 query heads over 2, head dim 16, 5 keys, contiguous
// fp32.
struct Call {
  alignas(16) float q[2 * 3 * 4 * 16] = {};
  alignas(16) float k[2 * 8 * 2 * 16] = {};
  alignas(16) float v[2 * 8 * 2 * 16] = {};
  alignas(16) float o[2 * 3 * 4 * 16] = {};
  alignas(16) float fresh[2 * 3 * 2 * 16] = {};
  float lse[2 * 3 * 4] = {};
  std::int32_t table[4] = {0, 1, 0, 1};
  std::uint8_t mask_bytes[64] = {};
  std::int32_t index[8] = {0, 3, 6, 6, 6, 6, 6, 6};
  tw_kv_cache kv = sized<tw_kv_cache>();
  tw_new_kv append = sized<tw_new_kv>();
  tw_mask mask = sized<tw_mask>();
  tw_target target = sized<tw_target>();
  tw_attention_args args = sized<tw_attention_args>();
  std::vector<std::uint64_t> memory;

  Call() {
    args.q_dtype = TW_DTYPE_FP32;
    args.batch = 2, args.q_heads = 4, args.kv_heads = 2, args.head_dim = 16, args.q_len = 3;
    args.q = q, args.q_batch_stride = 192, args.q_token_stride = 64, args.q_head_stride = 16;
    args.o = o, args.o_batch_stride = 192, args.o_token_stride = 64, args.o_head_stride = 16;
    args.lse = lse, args.lse_batch_stride = 12, args.lse_row_stride = 4, args.lse_head_stride = 1;
    args.kv = &kv;
    kv.k = k, kv.v = v, kv.kv_len = 5, kv.kv_capacity = 8;
    kv.k_batch_stride = kv.v_batch_stride = 256;
    kv.k_token_stride = kv.v_token_stride = 32;
    kv.k_head_stride = kv.v_head_stride = 16;
    append.k = append.v = fresh;
    append.k_batch_stride = append.v_batch_stride = 96;
    append.k_token_stride = append.v_token_stride = 32;
    append.k_head_stride = append.v_head_stride = 16;
    mask.data = mask_bytes, mask.width = 5;
    target.threads = 1;
    args.target = &target;
  }

  void use_pages() {
    kv.page_size = 4, kv.num_pages = 4, kv.kv_capacity = 0;
    kv.k_batch_stride = kv.v_batch_stride = 128;
    kv.page_table = table, kv.page_table_rows = 2, kv.page_table_width = 2;
  }

  void use_ragged() { args.q_indptr = index, args.q_len = 0, args.total_q = 6; }

  tw_status run() {
    std::uint64_t bytes = 0;
    const tw_status status = tw_attention_workspace(&args, &bytes);
    if (status != TW_OK) return status;
    memory.assign(bytes / 8 + 64, 0);
    const std::uintptr_t at = (reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256;
    args.workspace = reinterpret_cast<void*>(at);
    args.workspace_bytes = bytes;
    return tw_attention(&args);
  }
};

struct Refusal {
  const char* name;
  tw_status status;
  const char* text;  // must be part of tw_last_error
  std::function<void(Call&)> damage;
};

class AttentionArguments : public ::testing::TestWithParam<Refusal> {};

TEST_P(AttentionArguments, IsRefusedWithItsName) {
  Call call;
  ASSERT_EQ(call.run(), TW_OK) << tw_last_error();
  ASSERT_STREQ(tw_last_error(), "");
  GetParam().damage(call);
  std::memset(call.o, 0x7F, sizeof call.o);
  EXPECT_EQ(call.run(), GetParam().status);
  EXPECT_NE(std::string(tw_last_error()).find(GetParam().text), std::string::npos)
      << tw_last_error();
  for (const float x : call.o)
    ASSERT_EQ(std::memcmp(&x, "\x7F\x7F\x7F\x7F", 4), 0) << "o was written";
}

const float kNan = std::numeric_limits<float>::quiet_NaN();

const Refusal kRefusals[] = {
    {"QDtypeMissing", TW_INVALID_ARGUMENT, "q_dtype is 0", [](Call& c) { c.args.q_dtype = 0; }},
    {"QDtypeUnknown", TW_INVALID_ARGUMENT, "q_dtype is 9", [](Call& c) { c.args.q_dtype = 9; }},
    {"KvDtypeNegative", TW_INVALID_ARGUMENT, "kv_dtype is -1",
     [](Call& c) { c.args.kv_dtype = -1; }},
    {"ODtypeNarrower", TW_UNSUPPORTED, "o_dtype is 1",
     [](Call& c) { c.args.o_dtype = TW_DTYPE_BF16; }},
    {"BatchNegative", TW_INVALID_ARGUMENT, "batch is -1", [](Call& c) { c.args.batch = -1; }},
    {"QHeadsZero", TW_INVALID_ARGUMENT, "q_heads is 0", [](Call& c) { c.args.q_heads = 0; }},
    {"KvHeadsNegative", TW_INVALID_ARGUMENT, "kv_heads is -2",
     [](Call& c) { c.args.kv_heads = -2; }},
    {"HeadsDoNotDivide", TW_INVALID_ARGUMENT, "q_heads is 4, wanted a multiple of kv_heads = 3",
     [](Call& c) { c.args.kv_heads = 3; }},
    {"HeadDimOdd", TW_INVALID_ARGUMENT, "head_dim is 12", [](Call& c) { c.args.head_dim = 12; }},
    {"HeadDimLarge", TW_UNSUPPORTED, "head_dim is 520", [](Call& c) { c.args.head_dim = 520; }},
    {"HeadDimNegative", TW_INVALID_ARGUMENT, "head_dim is -8",
     [](Call& c) { c.args.head_dim = -8; }},
    {"VHeadDimOdd", TW_INVALID_ARGUMENT, "v_head_dim is 7", [](Call& c) { c.args.v_head_dim = 7; }},
    {"QLenNegative", TW_INVALID_ARGUMENT, "q_len is -3", [](Call& c) { c.args.q_len = -3; }},
    {"MaxQLenSmall", TW_INVALID_ARGUMENT, "max_q_len is 2", [](Call& c) { c.args.max_q_len = 2; }},
    {"TotalQDisagrees", TW_INVALID_ARGUMENT, "total_q is 7", [](Call& c) { c.args.total_q = 7; }},
    {"TotalQNegative", TW_INVALID_ARGUMENT, "total_q is -1", [](Call& c) { c.args.total_q = -1; }},
    {"RaggedWithQLen", TW_INVALID_ARGUMENT, "q_len is 3, wanted 0 with q_indptr",
     [](Call& c) { c.use_ragged(), c.args.q_len = 3; }},
    {"RowsOverflow", TW_INVALID_ARGUMENT, "batch x q_len",
     [](Call& c) { c.args.batch = INT32_MAX, c.args.q_len = INT32_MAX; }},
    {"QNull", TW_INVALID_ARGUMENT, "q is null", [](Call& c) { c.args.q = nullptr; }},
    {"ONull", TW_INVALID_ARGUMENT, "o is null", [](Call& c) { c.args.o = nullptr; }},
    {"QMisaligned", TW_INVALID_ARGUMENT, "q is 2 bytes past",
     [](Call& c) { c.args.q = reinterpret_cast<const char*>(c.q) + 2; }},
    {"QStrideOverflows", TW_INVALID_ARGUMENT, "q_token_stride",
     [](Call& c) { c.args.q_token_stride = kHuge; }},
    {"QStrideMostNegative", TW_INVALID_ARGUMENT, "q_head_stride",
     [](Call& c) { c.args.q_head_stride = std::numeric_limits<std::int64_t>::min(); }},
    {"OStrideNegative", TW_INVALID_ARGUMENT, "o_token_stride is -64",
     [](Call& c) { c.args.o_token_stride = -64; }},
    {"OStrideZero", TW_INVALID_ARGUMENT, "o_head_stride is 0",
     [](Call& c) { c.args.o_head_stride = 0; }},
    {"ORowsOverlap", TW_INVALID_ARGUMENT, "o_head_stride is 8",
     [](Call& c) { c.args.o_head_stride = 8; }},
    {"LseRowsOverlap", TW_INVALID_ARGUMENT, "lse_row_stride is 2",
     [](Call& c) { c.args.lse_row_stride = 2; }},
    {"KvMissing", TW_INVALID_ARGUMENT, "kv is null", [](Call& c) { c.args.kv = nullptr; }},
    {"KNull", TW_INVALID_ARGUMENT, "kv.k is null", [](Call& c) { c.kv.k = nullptr; }},
    {"KMisaligned", TW_INVALID_ARGUMENT, "kv.k is 4 bytes past", [](Call& c) { c.kv.k = c.k + 1; }},
    {"KStrideMisaligned", TW_INVALID_ARGUMENT, "kv.k_token_stride is 33",
     [](Call& c) { c.kv.k_token_stride = 33; }},
    {"VStrideOverflows", TW_INVALID_ARGUMENT, "kv.v_batch_stride",
     [](Call& c) { c.kv.v_batch_stride = kHuge / 2; }},
    {"TwoLengths", TW_INVALID_ARGUMENT, "2 of kv_lens, kv_indptr",
     [](Call& c) { c.kv.kv_lens = c.kv.kv_indptr = c.index, c.kv.kv_len = 0; }},
    {"ScalarWithLengths", TW_INVALID_ARGUMENT, "kv.kv_len is 5, wanted 0",
     [](Call& c) { c.kv.kv_lens = c.index; }},
    {"KvLenNegative", TW_INVALID_ARGUMENT, "kv.kv_len is -5", [](Call& c) { c.kv.kv_len = -5; }},
    {"KvLenAboveCapacity", TW_INVALID_ARGUMENT, "kv.kv_len is 9", [](Call& c) { c.kv.kv_len = 9; }},
    {"KvLenAboveBound", TW_INVALID_ARGUMENT, "kv.kv_len is 5",
     [](Call& c) { c.args.max_kv_len = 4; }},
    {"CapacityMissing", TW_INVALID_ARGUMENT, "kv.kv_capacity is 0",
     [](Call& c) { c.kv.kv_lens = c.index, c.kv.kv_len = 0, c.kv.kv_capacity = 0; }},
    {"CapacityNegative", TW_INVALID_ARGUMENT, "kv.kv_capacity is -1",
     [](Call& c) { c.kv.kv_capacity = -1; }},
    {"PageSizeNegative", TW_INVALID_ARGUMENT, "kv.page_size is -4",
     [](Call& c) { c.kv.page_size = -4; }},
    {"PageTableNull", TW_INVALID_ARGUMENT, "kv.page_table is null",
     [](Call& c) { c.use_pages(), c.kv.page_table = nullptr; }},
    {"PageTableShort", TW_INVALID_ARGUMENT, "kv.page_table_rows is 1",
     [](Call& c) { c.use_pages(), c.kv.page_table_rows = 1; }},
    {"PagesOverflow", TW_INVALID_ARGUMENT, "kv.k_batch_stride",
     [](Call& c) {
       c.use_pages(), c.kv.num_pages = INT32_MAX, c.kv.k_batch_stride = std::int64_t{1} << 40;
     }},
    {"LastPageWithoutIndptr", TW_INVALID_ARGUMENT, "kv.page_indptr is null",
     [](Call& c) { c.use_pages(), c.kv.last_page_len = c.index, c.kv.kv_len = 0; }},
    {"CsrWithPageRows", TW_INVALID_ARGUMENT, "kv.page_rows is set",
     [](Call& c) { c.use_pages(), c.kv.page_indptr = c.index, c.kv.page_rows = c.index; }},
    {"IndexMisaligned", TW_INVALID_ARGUMENT, "kv.kv_lens",
     [](Call& c) {
       c.kv.kv_len = 0;
       c.kv.kv_lens =
           reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(c.index) + 1);
     }},
    {"FlagUnknown", TW_UNSUPPORTED, "flags is 256", [](Call& c) { c.args.flags = 256; }},
    {"ScaleNan", TW_INVALID_ARGUMENT, "scale is nan", [](Call& c) { c.args.scale = kNan; }},
    {"ScaleInfinite", TW_INVALID_ARGUMENT, "scale is inf",
     [](Call& c) { c.args.scale = INFINITY; }},
    {"SoftcapNegative", TW_INVALID_ARGUMENT, "softcap is -30",
     [](Call& c) { c.args.softcap = -30; }},
    {"SoftcapNan", TW_INVALID_ARGUMENT, "softcap is nan", [](Call& c) { c.args.softcap = kNan; }},
    {"WindowLeftNegative", TW_INVALID_ARGUMENT, "window_left is -1",
     [](Call& c) { c.args.flags = TW_WINDOW_LEFT, c.args.window_left = -1; }},
    {"WindowRightNegative", TW_INVALID_ARGUMENT, "window_right is -7",
     [](Call& c) { c.args.flags = TW_WINDOW_RIGHT, c.args.window_right = -7; }},
    {"MaskDataNull", TW_INVALID_ARGUMENT, "mask.data is null",
     [](Call& c) { c.args.mask = &c.mask, c.mask.data = nullptr; }},
    {"MaskWidthNegative", TW_INVALID_ARGUMENT, "mask.width is -5",
     [](Call& c) { c.args.mask = &c.mask, c.mask.width = -5; }},
    {"MaskStrideOverflows", TW_INVALID_ARGUMENT, "mask_head_stride",
     [](Call& c) { c.args.mask = &c.mask, c.mask.head_stride = -kHuge; }},
    {"MaskOffsetWithoutExtent", TW_INVALID_ARGUMENT, "mask.bytes is 0",
     [](Call& c) {
       static const std::int64_t offsets[2] = {};
       c.args.mask = &c.mask, c.mask.offset = offsets;
     }},
    {"RowClassUnknown", TW_INVALID_ARGUMENT, "row_class is 3",
     [](Call& c) { c.args.row_class = 3; }},
    {"KScaleReserved", TW_UNSUPPORTED, "k_scale is set", [](Call& c) { c.args.k_scale = c.lse; }},
    {"BiasReserved", TW_UNSUPPORTED, "bias is set", [](Call& c) { c.args.bias = c.lse; }},
    {"KvSharedReserved", TW_UNSUPPORTED, "kv_shared is set", [](Call& c) { c.args.kv_shared = 1; }},
    {"VariantUnknown", TW_INVALID_ARGUMENT, "variant is 99", [](Call& c) { c.args.variant = 99; }},
    {"AppendKNull", TW_INVALID_ARGUMENT, "append.k is null",
     [](Call& c) { c.args.append = &c.append, c.append.k = nullptr; }},
    {"AppendCacheOverlaps", TW_INVALID_ARGUMENT, "kv.k_batch_stride is 0",
     [](Call& c) { c.args.append = &c.append, c.kv.k_batch_stride = 0; }},
    {"DeviceUnknown", TW_INVALID_ARGUMENT, "target.device_kind is 7",
     [](Call& c) { c.target.device_kind = 7; }},
    {"ThreadsNegative", TW_INVALID_ARGUMENT, "target.threads is -1",
     [](Call& c) { c.target.threads = -1; }},
    {"StructSizeZero", TW_INVALID_ARGUMENT, "args.struct_size is 0",
     [](Call& c) { c.args.struct_size = 0; }},
    {"StructSizeWild", TW_INVALID_ARGUMENT, "kv.struct_size is 4294967295",
     [](Call& c) { c.kv.struct_size = UINT32_MAX; }},
    {"StructSizeInsideAPointer", TW_INVALID_ARGUMENT, "args.struct_size is 12",
     [](Call& c) { c.args.struct_size = offsetof(tw_attention_args, target) + 4; }},
};

INSTANTIATE_TEST_SUITE_P(Each, AttentionArguments, ::testing::ValuesIn(kRefusals),
                         [](const auto& c) { return c.param.name; });

TEST(AttentionCall, NullStructIsRefused) {
  EXPECT_EQ(tw_attention(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_STREQ(tw_last_error(), "args is null, wanted a struct");
}

TEST(AttentionCall, SmallerStructReadsAsZeroTail) {
  Call call;
  call.args.variant = 99;  // beyond the stated size: not read
  call.args.struct_size = offsetof(tw_attention_args, kv_shared);
  std::uint64_t bytes = 0;
  EXPECT_EQ(tw_attention_workspace(&call.args, &bytes), TW_OK) << tw_last_error();
}

TEST(AttentionCall, LargerStructNeedsAZeroTail) {
  Call call;
  struct Newer {
    tw_attention_args args;
    char tail[64];
  } newer{call.args, {}};
  newer.args.struct_size = sizeof newer;
  std::uint64_t bytes = 0;
  EXPECT_EQ(tw_attention_workspace(&newer.args, &bytes), TW_OK) << tw_last_error();
  newer.tail[63] = 1;
  EXPECT_EQ(tw_attention_workspace(&newer.args, &bytes), TW_UNSUPPORTED);
  EXPECT_NE(std::string(tw_last_error()).find("args has a field at byte"), std::string::npos)
      << tw_last_error();
}

TEST(AttentionCall, WorkspaceIsCheckedForSizeAndAlignment) {
  Call call;
  std::uint64_t bytes = 0;
  ASSERT_EQ(tw_attention_workspace(&call.args, &bytes), TW_OK);
  ASSERT_GT(bytes, 0u);
  ASSERT_LE(bytes, std::uint64_t{256} << 20);
  ASSERT_EQ(call.run(), TW_OK);
  call.args.workspace_bytes = bytes - 1;
  EXPECT_EQ(tw_attention(&call.args), TW_WORKSPACE_TOO_SMALL);
  EXPECT_NE(std::string(tw_last_error()).find("workspace_bytes is"), std::string::npos);
  call.args.workspace_bytes = bytes;
  call.args.workspace = static_cast<char*>(call.args.workspace) + 128;
  EXPECT_EQ(tw_attention(&call.args), TW_INVALID_ARGUMENT);
  call.args.workspace = nullptr;
  EXPECT_EQ(tw_attention(&call.args), TW_INVALID_ARGUMENT);
  EXPECT_STREQ(tw_last_error(), "workspace is null, wanted memory");
}

TEST(AttentionCall, WorkspaceStaysBoundedForTheLargestBounds) {
  Call call;
  call.use_pages();
  call.args.q_heads = 1 << 14, call.args.kv_heads = 1, call.args.head_dim = 512;
  call.args.q_head_stride = call.args.o_head_stride = 512;
  call.args.q_token_stride = call.args.o_token_stride = 512LL << 14;
  call.args.lse = nullptr;
  call.use_ragged();
  call.args.batch = 100000, call.args.total_q = INT32_MAX;
  call.kv.page_table_width = 1 << 20, call.kv.page_table_rows = 100000,
  call.kv.num_pages = INT32_MAX;
  call.kv.k_token_stride = call.kv.v_token_stride = 512,
  call.kv.k_batch_stride = call.kv.v_batch_stride = 2048;
  call.target.threads = 4096;
  std::uint64_t bytes = 0;
  ASSERT_EQ(tw_attention_workspace(&call.args, &bytes), TW_OK) << tw_last_error();
  EXPECT_LE(bytes, std::uint64_t{256} << 20);
}

TEST(AttentionCall, WorkspaceQueryNeedsNoPointers) {
  Call call;
  call.args.q = nullptr, call.args.o = nullptr, call.kv.k = nullptr, call.kv.v = nullptr;
  std::uint64_t bytes = 0;
  EXPECT_EQ(tw_attention_workspace(&call.args, &bytes), TW_OK) << tw_last_error();
  EXPECT_EQ(tw_attention_workspace(&call.args, nullptr), TW_INVALID_ARGUMENT);
}

TEST(AttentionCall, ExplainIsCutAndTerminated) {
  Call call;
  std::size_t length = 0;
  ASSERT_EQ(tw_attention_explain(&call.args, nullptr, 0, &length), TW_OK) << tw_last_error();
  ASSERT_GT(length, 20u);
  std::vector<char> text(length + 1, 'x');
  ASSERT_EQ(tw_attention_explain(&call.args, text.data(), text.size(), nullptr), TW_OK);
  EXPECT_EQ(std::strlen(text.data()), length);
  char small[8];
  std::memset(small, 'x', sizeof small);
  ASSERT_EQ(tw_attention_explain(&call.args, small, 5, nullptr), TW_OK);
  EXPECT_EQ(small[4], '\0');
  EXPECT_EQ(small[5], 'x');
  EXPECT_EQ(tw_attention_explain(&call.args, nullptr, 5, nullptr), TW_INVALID_ARGUMENT);
}

TEST(AttentionCall, EmptyBatchNeedsNothing) {
  auto args = sized<tw_attention_args>();
  auto kv = sized<tw_kv_cache>();
  args.q_dtype = TW_DTYPE_BF16;
  args.q_heads = args.kv_heads = 1, args.head_dim = 64;
  args.kv = &kv;
  std::uint64_t bytes = 0;
  ASSERT_EQ(tw_attention_workspace(&args, &bytes), TW_OK) << tw_last_error();
  std::vector<char> memory(bytes + 256);
  args.workspace =
      reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256);
  args.workspace_bytes = bytes;
  EXPECT_EQ(tw_attention(&args), TW_OK) << tw_last_error();
}

TEST(Discovery, TextsAndNumbers) {
  EXPECT_EQ(tw_version(), static_cast<std::uint32_t>((TW_VERSION_MAJOR << 16) |
                                                     (TW_VERSION_MINOR << 8) | TW_VERSION_PATCH));
  EXPECT_NE(std::string(tw_build_info()).find("cpu_isa: "), std::string::npos);
  EXPECT_STREQ(tw_status_string(TW_OK), "OK");
  EXPECT_STREQ(tw_status_string(TW_INTERNAL), "INTERNAL");
  EXPECT_STREQ(tw_status_string(-1), "unknown status");
  EXPECT_STREQ(tw_status_string(6), "unknown status");
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_BF16, TW_DTYPE_DEFAULT, 128, 0), 1);
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_FP32, TW_DTYPE_FP16, 72, 512), 1);
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_BF16, TW_DTYPE_BF16, 100, 0), 0);
  EXPECT_EQ(tw_supports(2, TW_DTYPE_BF16, TW_DTYPE_BF16, 128, 0), 0);
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_DEFAULT, TW_DTYPE_BF16, 128, 0), 0);
}

TEST(LastError, BelongsToItsThreadAndIsClearedOnEntry) {
  EXPECT_EQ(tw_attention(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_STRNE(tw_last_error(), "");
  auto scale = sized<tw_elementwise_args>();
  scale.dtype = TW_DTYPE_FP32;
  scale.value = 1.0f;
  EXPECT_EQ(tw_scale(&scale), TW_OK) << tw_last_error();
  EXPECT_STREQ(tw_last_error(), "");
}

}  // namespace
