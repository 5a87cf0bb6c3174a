// Public bug reports about huge pools and long contexts: offsets past 2^31 and 2^32. Pools are
// address space of which only the pages in use exist. Names carry the ids of docs/cases.md.
#include <cmath>
#include <cstring>

#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

constexpr Index kPage = 16, kHeads = 8, kDim = 128;
constexpr Index kPageElements = kPage * kHeads * kDim;
constexpr tw_dtype kType = TW_DTYPE_BF16;

struct Pools {
  std::uint8_t *k, *v;
  Index pages;
};

// Three pages of drawn rows at the given ids.
void fill_pages(const Pools& pools, const std::vector<std::int32_t>& ids) {
  const auto k = drawn(4, verify::kK, kType, 3 * kPageElements),
             v = drawn(4, verify::kV, kType, 3 * kPageElements);
  constexpr std::size_t bytes = kPageElements * 2;
  for (std::size_t n = 0; n < 3; ++n) {
    std::memcpy(pools.k + static_cast<Index>(bytes) * ids[n], k.data() + n * bytes, bytes);
    std::memcpy(pools.v + static_cast<Index>(bytes) * ids[n], v.data() + n * bytes, bytes);
  }
}

void use_pools(RawCall& call, const Pools& pools, const std::vector<std::int32_t>& ids,
               bool head_major) {
  call.kv.k = pools.k;
  call.kv.v = pools.v;
  call.kv.page_size = kPage;
  call.kv.num_pages = pools.pages;
  call.kv.page_table = ids.data();
  call.kv.page_table_rows = 1;
  call.kv.page_table_width = static_cast<std::int32_t>(ids.size());
  call.kv.kv_len = 40;
  call.kv.k_batch_stride = call.kv.v_batch_stride = kPageElements;
  call.kv.k_token_stride = call.kv.v_token_stride = head_major ? kDim : kHeads * kDim;
  call.kv.k_head_stride = call.kv.v_head_stride = head_major ? kPage * kDim : kDim;
}

TEST(PublicCases, B04PageOffsetsPassTwoToTheThirtyTwo) {
  constexpr Index kPages = 262146;
  const Mapping k(kPages * kPageElements * 2), v(kPages * kPageElements * 2);
  const Mapping small_k(3 * kPageElements * 2), small_v(3 * kPageElements * 2);
  ASSERT_NE(k.data(), nullptr);
  ASSERT_NE(v.data(), nullptr);
  const std::vector<std::int32_t> ids = {131071, 131072, 262144}, small_ids = {0, 1, 2};
  const Pools large{k.data(), v.data(), kPages}, small{small_k.data(), small_v.data(), 3};
  fill_pages(large, ids);
  fill_pages(small, small_ids);
  for (const bool head_major : {false, true}) {
    for (const Index q_len : {1, 20}) {
      RawCall a({kType, 1, q_len, 32, kHeads, kDim}), b({kType, 1, q_len, 32, kHeads, kDim});
      use_pools(a, large, ids, head_major);
      use_pools(b, small, small_ids, head_major);
      for (const int variant : {1, 2, 3}) {
        ASSERT_EQ(a.run(variant), TW_OK) << a.error();
        ASSERT_EQ(b.run(variant), TW_OK) << b.error();
        EXPECT_EQ(a.bytes(), b.bytes()) << "variant " << variant;
      }
    }
  }
}

TEST(PublicCases, B04AppendWritesBeyondTwoToTheThirtyTwo) {
  constexpr Index kPages = 262146;
  const Mapping k(kPages * kPageElements * 2), v(kPages * kPageElements * 2);
  ASSERT_NE(k.data(), nullptr);
  ASSERT_NE(v.data(), nullptr);
  const std::vector<std::int32_t> ids = {131071, 131072, 262144};
  RawCall call({kType, 1, 1, 32, kHeads, kDim});
  use_pools(call, {k.data(), v.data(), kPages}, ids, false);
  call.kv.kv_len = 34;
  const auto row = drawn(4, verify::kNewK, kType, kHeads * kDim);
  tw_new_kv rows{};
  rows.struct_size = sizeof rows;
  rows.k = rows.v = row.data();
  rows.k_head_stride = rows.v_head_stride = kDim;
  tw_kv_append_args args{};
  args.struct_size = sizeof args;
  args.kv_dtype = kType;
  args.batch = args.q_len = 1;
  args.kv_heads = kHeads;
  args.head_dim = kDim;
  args.rows = &rows;
  args.kv = &call.kv;
  ASSERT_EQ(tw_kv_append(&args), TW_OK) << tw_last_error();
  const std::size_t row_bytes = kHeads * kDim * 2, page_bytes = kPageElements * 2;
  std::vector<std::uint8_t> expected(page_bytes, 0);
  std::memcpy(expected.data() + row_bytes, row.data(), row_bytes);
  EXPECT_EQ(std::memcmp(k.data() + page_bytes * 262144, expected.data(), page_bytes), 0);
  EXPECT_EQ(std::memcmp(v.data() + page_bytes * 262144, expected.data(), page_bytes), 0);
  const std::vector<std::uint8_t> zeros(page_bytes, 0);
  EXPECT_EQ(std::memcmp(k.data(), zeros.data(), page_bytes), 0);
}

TEST(PublicCases, B79TokenOffsetsOfAFusedViewPassTwoToTheThirtyOne) {
  constexpr Index kTokens = 174827, kRow = 3 * 32 * kDim,
                  kFirst = 174720;  // a multiple of the key tile
  const Mapping fused(kTokens * kRow * 2);
  ASSERT_NE(fused.data(), nullptr);
  const auto tail = drawn(79, verify::kK, kType, (kTokens - kFirst) * kRow);
  std::memcpy(fused.data() + kFirst * kRow * 2, tail.data(), tail.size());
  RawCall whole({kType, 1, 1, 32, 32, kDim}), part({kType, 1, 1, 32, 32, kDim});
  for (RawCall* call : {&whole, &part}) {
    std::uint8_t* base = call == &whole ? fused.data() : const_cast<std::uint8_t*>(tail.data());
    call->args.flags = TW_CAUSAL | TW_WINDOW_LEFT;
    call->args.window_left = 64;
    call->kv.k = base + 32 * kDim * 2;
    call->kv.v = base + 64 * kDim * 2;
    call->kv.k_token_stride = call->kv.v_token_stride = kRow;
    call->kv.k_head_stride = call->kv.v_head_stride = kDim;
    call->kv.kv_len = static_cast<std::int32_t>(call == &whole ? kTokens : kTokens - kFirst);
  }
  for (const int variant : {1, 2, 3}) {
    ASSERT_EQ(whole.run(variant), TW_OK) << whole.error();
    ASSERT_EQ(part.run(variant), TW_OK) << part.error();
    EXPECT_EQ(whole.bytes(), part.bytes()) << "variant " << variant;
  }
}

TEST(PublicCases, B88PagesOfOneTokenBeyondTwoToTheThirtyOne) {
  constexpr Index kTokens = 2097154, kRow = kHeads * kDim;
  const Mapping k(kTokens * kRow * 2), v(kTokens * kRow * 2);
  ASSERT_NE(k.data(), nullptr);
  ASSERT_NE(v.data(), nullptr);
  const std::vector<std::int32_t> ids = {0, 2097151, 2097152}, small_ids = {0, 1, 2};
  auto small_k = drawn(88, verify::kK, kType, 3 * kRow),
       small_v = drawn(88, verify::kV, kType, 3 * kRow);
  for (Index n = 0; n < 3; ++n) {
    std::memcpy(k.data() + at(ids, n) * kRow * 2, small_k.data() + n * kRow * 2, kRow * 2);
    std::memcpy(v.data() + at(ids, n) * kRow * 2, small_v.data() + n * kRow * 2, kRow * 2);
  }
  RawCall a({kType, 1, 1, 32, kHeads, kDim}), b({kType, 1, 1, 32, kHeads, kDim});
  use_pools(a, {k.data(), v.data(), kTokens}, ids, false);
  use_pools(b, {small_k.data(), small_v.data(), 3}, small_ids, false);
  for (RawCall* call : {&a, &b}) {
    call->kv.page_size = 1;
    call->kv.k_batch_stride = call->kv.v_batch_stride = kRow;
    call->kv.kv_len = 3;
    ASSERT_EQ(call->run(), TW_OK) << call->error();
  }
  EXPECT_EQ(a.bytes(), b.bytes());
}

// One page repeated: a million keys in a pool of sixteen.
TEST(PublicCases, B109ScratchDoesNotGrowWithTheLength) {
  for (const Index kv_len : {65536, 131072, 1048576}) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(kv_len / kPage), 0);
    auto k = drawn(109, verify::kK, kType, kPage * kDim),
         v = drawn(109, verify::kV, kType, kPage * kDim);
    RawCall call({kType, 1, 1, 8, 1, kDim});
    std::fill(call.q.begin(), call.q.end(), std::uint8_t{0});
    use_pools(call, {k.data(), v.data(), 1}, table, false);
    call.kv.k_token_stride = call.kv.v_token_stride = kDim;
    call.kv.kv_len = static_cast<std::int32_t>(kv_len);
    for (const bool windowed : {false, true}) {
      call.args.flags = windowed ? TW_WINDOW_LEFT : 0;
      call.args.window_left = 65536;
      ASSERT_EQ(call.run(), TW_OK) << call.error();
      const Index seen = windowed ? std::min<Index>(kv_len, 65537) : kv_len;
      for (const float l : call.lse)
        EXPECT_NEAR(static_cast<double>(l), std::log(static_cast<double>(seen)), 1e-4);
    }
  }
}

TEST(PublicCases, B47BatchesAndHeadsBeyondSixtyFiveThousand) {
  struct Shape {
    Index batch, q_heads, kv_heads, kv_len;
  };
  for (const Shape s : {Shape{65535, 2, 1, 4}, Shape{65536, 2, 1, 4}, Shape{80000, 2, 1, 16},
                        Shape{1, 65536, 1, 4}}) {
    constexpr Index kWide = 64;
    RawCall call({kType, s.batch, 1, s.q_heads, s.kv_heads, kWide});
    auto k = drawn(47, verify::kK, kType, s.kv_len * kWide),
         v = drawn(47, verify::kV, kType, s.kv_len * kWide);
    call.kv.k = k.data();
    call.kv.v = v.data();
    call.kv.k_token_stride = call.kv.v_token_stride = kWide;  // every request reads the same rows
    call.kv.kv_len = static_cast<std::int32_t>(s.kv_len);
    call.args.q_batch_stride = call.args.q_head_stride = 0;
    ASSERT_EQ(call.run(), TW_OK) << call.error();
    const std::vector<float> first(call.o.begin(), call.o.begin() + kWide);
    EXPECT_TRUE(std::isfinite(first[0]));
    for (std::size_t row = 0; row < call.lse.size(); ++row) {
      ASSERT_EQ(call.lse[row], call.lse[0]) << row;
      ASSERT_EQ(std::memcmp(&call.o[row * kWide], first.data(), kWide * sizeof(float)), 0) << row;
    }
  }
}

}  // namespace
}  // namespace tilewise::tests
