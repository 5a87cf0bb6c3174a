// Public bug reports about refusals: what the library does not do it says, by name, and nothing is
// written. Names carry the ids of docs/cases.md.
#include <algorithm>
#include <cmath>

#include "tests/support/attend.h"
#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

// A call that succeeds as it stands.
class SoundCall : public RawCall {
 public:
  SoundCall()
      : RawCall({TW_DTYPE_BF16, 1, 2, 4, 2, 64}),
        rows_(drawn(1, verify::kK, TW_DTYPE_BF16, 5 * 2 * 64)) {
    kv.k = kv.v = rows_.data();
    kv.k_token_stride = kv.v_token_stride = 2 * 64;
    kv.k_head_stride = kv.v_head_stride = 64;
    kv.kv_len = 5;
  }

 private:
  std::vector<std::uint8_t> rows_;
};

struct Refused {
  const char* named;  // what the message must say
  tw_status status;
  void (*change)(RawCall&);
};

std::ostream& operator<<(std::ostream& out, const Refused& r) { return out << r.named; }

class Refusal : public testing::TestWithParam<Refused> {};

TEST_P(Refusal, NamesTheArgumentAndWritesNothing) {
  SoundCall call;
  ASSERT_EQ(call.run(), TW_OK) << call.error();
  GetParam().change(call);
  EXPECT_EQ(call.run(), GetParam().status) << call.error();
  EXPECT_NE(call.error().find(GetParam().named), std::string::npos) << call.error();
  EXPECT_TRUE(std::all_of(call.o.begin(), call.o.end(), [](float x) { return std::isnan(x); }));
  SoundCall next;
  EXPECT_EQ(next.run(), TW_OK) << "the next valid call works: " << next.error();
  EXPECT_EQ(next.error(), "");
}

const float kOne = 1;

const Refused kB49[] = {
    {"head_dim", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.head_dim = 257; }},
    {"520", TW_UNSUPPORTED, [](RawCall& c) { c.args.head_dim = 520; }},
    {"head_dim", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.head_dim = 0; }},
    {"q_dtype", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.q_dtype = 0; }},
    {"page_size", TW_INVALID_ARGUMENT, [](RawCall& c) { c.kv.page_size = -1; }},
    {"batch", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.batch = -1; }},
    {"kv_heads", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.kv_heads = 0; }},
    {"kv", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.kv = nullptr; }},
    {"q is null", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.q = nullptr; }},
    {"kv.k", TW_INVALID_ARGUMENT, [](RawCall& c) { c.kv.k = nullptr; }},
    {"q_token_stride", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.q_token_stride = INT64_MAX; }},
    {"struct_size", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.struct_size = 0; }}};
INSTANTIATE_TEST_SUITE_P(B49, Refusal, testing::ValuesIn(kB49));

const Refused kB101[] = {
    {"33", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.q_heads = 33, c.args.kv_heads = 2; }},
    {"3", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.q_heads = 3, c.args.kv_heads = 2; }},
    {"kv_heads = 3", TW_INVALID_ARGUMENT,
     [](RawCall& c) { c.args.q_heads = 2, c.args.kv_heads = 3; }}};
INSTANTIATE_TEST_SUITE_P(B101, Refusal, testing::ValuesIn(kB101));

// 8-bit caches are reserved: their types and scales are refused in every build that does not read
// them.
const Refused kB11[] = {{"kv_dtype", TW_INVALID_ARGUMENT, [](RawCall& c) { c.args.kv_dtype = 4; }},
                        {"k_scale", TW_UNSUPPORTED, [](RawCall& c) { c.args.k_scale = &kOne; }},
                        {"v_scale", TW_UNSUPPORTED, [](RawCall& c) { c.args.v_scale = &kOne; }},
                        {"kv_shared", TW_UNSUPPORTED, [](RawCall& c) { c.args.kv_shared = 1; }}};
INSTANTIATE_TEST_SUITE_P(B11, Refusal, testing::ValuesIn(kB11));

const Refused kB107[] = {{"bias", TW_UNSUPPORTED, [](RawCall& c) { c.args.bias = &kOne; }}};
INSTANTIATE_TEST_SUITE_P(B107, Refusal, testing::ValuesIn(kB107));

// A device that no build knows: the support query says no, the call refuses.
const Refused kB68[] = {
    {"device_kind", TW_INVALID_ARGUMENT, [](RawCall& c) { c.target.device_kind = 2; }}};
INSTANTIATE_TEST_SUITE_P(B68, Refusal, testing::ValuesIn(kB68));

TEST(PublicCases, B68SupportIsAskedBeforeTheCall) {
  const bool built = std::string(tw_build_info()).find("backends: cpu, cuda") != std::string::npos;
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_BF16, TW_DTYPE_BF16, 128, 0), 1);
  EXPECT_EQ(tw_supports(TW_DEVICE_CUDA, TW_DTYPE_BF16, TW_DTYPE_BF16, 128, 0), built ? 1 : 0);
  EXPECT_EQ(tw_supports(2, TW_DTYPE_BF16, TW_DTYPE_BF16, 128, 0), 0);
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_BF16, 4, 128, 0), 0);
  EXPECT_EQ(tw_supports(TW_DEVICE_CPU, TW_DTYPE_BF16, TW_DTYPE_BF16, 520, 0), 0);
}

// Without a device, or without the code for it, a call says so and writes nothing.
TEST(PublicCases, B68ACallWithoutADeviceIsRefused) {
  if (verify::cuda_usable()) GTEST_SKIP() << "this machine has a device";
  SoundCall call;
  call.target.device_kind = TW_DEVICE_CUDA;
  const tw_status status = call.run();
  EXPECT_TRUE(status == TW_UNSUPPORTED || status == TW_BACKEND_ERROR) << status;
  EXPECT_NE(call.error(), "");
  EXPECT_TRUE(std::all_of(call.o.begin(), call.o.end(), [](float x) { return std::isnan(x); }));
}

TEST(PublicCases, B49EveryEntryPointRefusesNull) {
  std::uint64_t bytes;
  EXPECT_EQ(tw_attention(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_attention_workspace(nullptr, &bytes), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_attention_explain(nullptr, nullptr, 0, nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_qk_prep(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_rope(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_kv_append(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_merge_states(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_output_gate(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_softcap(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_EQ(tw_scale(nullptr), TW_INVALID_ARGUMENT);
  EXPECT_STRNE(tw_last_error(), "");
}

// A slot that the pool does not have, and an append that finds a bad page: recorded, nothing
// written, page 0 least of all.
TEST(PublicCases, B50AppendToABadSlotWritesNothing) {
  std::vector<std::uint8_t> pool(3 * 16 * 2 * 64 * 2, 0xAB);
  const auto row = drawn(50, verify::kNewK, TW_DTYPE_BF16, 2 * 64);
  tw_new_kv rows{};
  rows.struct_size = sizeof rows;
  rows.k = rows.v = row.data();
  rows.k_head_stride = rows.v_head_stride = 64;
  tw_kv_cache kv{};
  kv.struct_size = sizeof kv;
  kv.k = kv.v = pool.data();
  kv.page_size = 16;
  kv.num_pages = 3;
  kv.k_batch_stride = kv.v_batch_stride = 16 * 2 * 64;
  kv.k_token_stride = kv.v_token_stride = 2 * 64;
  kv.k_head_stride = kv.v_head_stride = 64;
  tw_status_record fault{};
  tw_kv_append_args args{};
  args.struct_size = sizeof args;
  args.kv_dtype = TW_DTYPE_BF16;
  args.kv_heads = 2;
  args.head_dim = 64;
  args.rows = &rows;
  args.kv = &kv;
  args.total_q = 1;
  args.status = &fault;
  for (const std::int32_t slot : {48, -5, 2147483647}) {
    fault = tw_status_record{};
    args.slot_mapping = &slot;
    ASSERT_EQ(tw_kv_append(&args), TW_OK) << tw_last_error();
    EXPECT_EQ(fault.what, TW_WHAT_SLOT);
    EXPECT_EQ(fault.value, slot);
    EXPECT_TRUE(
        std::all_of(pool.begin(), pool.end(), [](std::uint8_t byte) { return byte == 0xAB; }));
  }
}

}  // namespace
}  // namespace tilewise::tests
