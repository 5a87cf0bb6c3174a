// Appended rows of another type than the cache's that have no slot: every KV head of a call attends
// its own converted rows, in every variant, however many heads a worker walks together.
#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cstdint>
#include <vector>

namespace {

constexpr int kHeads = 8, kDim = 16, kRows = 3;

// o of all rows and heads for V rows of `head + 1` everywhere and q = 0.
std::vector<float> attend(std::int32_t variant) {
  static std::uint64_t memory[1 << 18];
  std::vector<float> q(kRows * kHeads * kDim), o(q.size()), fresh_k(q.size()), fresh_v(q.size());
  for (std::size_t i = 0; i < fresh_v.size(); ++i)
    fresh_v[i] = static_cast<float>(i / kDim % kHeads + 1);
  std::vector<std::uint16_t> pool(kHeads * kDim);
  const std::int32_t holes[kRows] = {-1, -1, -1};
  tw_kv_cache kv{};
  kv.struct_size = sizeof kv;
  kv.page_size = 1, kv.num_pages = 1, kv.kv_len = kRows;
  kv.k = kv.v = pool.data();
  kv.k_batch_stride = kv.v_batch_stride = kHeads * kDim;
  kv.k_head_stride = kv.v_head_stride = kDim;
  kv.page_table = holes, kv.page_table_rows = 1, kv.page_table_width = kRows;
  tw_new_kv fresh{};
  fresh.struct_size = sizeof fresh;
  fresh.dtype = TW_DTYPE_FP32;
  fresh.k = fresh_k.data(), fresh.v = fresh_v.data();
  fresh.k_token_stride = fresh.v_token_stride = kHeads * kDim;
  fresh.k_head_stride = fresh.v_head_stride = kDim;
  tw_target alone{};  // one worker walks all heads
  alone.struct_size = sizeof alone;
  alone.threads = 1;
  tw_attention_args args{};
  args.struct_size = sizeof args;
  args.target = &alone;
  args.flags = TW_CAUSAL;
  args.q_dtype = TW_DTYPE_FP32, args.kv_dtype = TW_DTYPE_BF16;
  args.batch = 1, args.q_heads = args.kv_heads = kHeads, args.head_dim = kDim, args.q_len = kRows;
  args.q = q.data(), args.q_token_stride = kHeads * kDim, args.q_head_stride = kDim;
  args.o = o.data(), args.o_token_stride = kHeads * kDim, args.o_head_stride = kDim;
  args.kv = &kv, args.append = &fresh, args.variant = variant;
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  args.workspace = reinterpret_cast<void*>((start + 255) / 256 * 256);
  args.workspace_bytes = sizeof memory - 256;
  EXPECT_EQ(tw_attention(&args), TW_OK) << tw_last_error();
  return o;
}

TEST(AppendTypes, EveryHeadAttendsItsOwnConvertedRows) {
  for (const std::int32_t variant : {1, 2, 3}) {
    const std::vector<float> o = attend(variant);
    for (std::size_t i = 0; i < o.size(); ++i) {
      ASSERT_EQ(o[i], static_cast<float>(i / kDim % kHeads + 1))
          << "variant " << variant << ", element " << i;
    }
  }
}

}  // namespace
