// Public bug reports about huge pools and long contexts: offsets past 2^31 and 2^32. On the CPU
// pools are address space of which only the pages in use exist. Names carry the ids of
// docs/cases.md.
#include <cmath>
#include <cstring>

#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

constexpr Index kPage = 16, kHeads = 8, kDim = 128;
constexpr Index kPageElements = kPage * kHeads * kDim;
constexpr tw_dtype kType = TW_DTYPE_BF16;

struct Pools {
  explicit Pools(Index count)
      : k(count * kPageElements * 2), v(count * kPageElements * 2), pages(count) {}
  bool there() const { return k.data() != nullptr && v.data() != nullptr; }
  Mapping k, v;
  Index pages;
};

// Three pages of drawn rows at the given ids.
void fill_pages(const Pools& pools, const std::vector<std::int32_t>& ids) {
  const auto k = drawn(4, verify::kK, kType, 3 * kPageElements),
             v = drawn(4, verify::kV, kType, 3 * kPageElements);
  constexpr Index bytes = kPageElements * 2;
  for (Index n = 0; n < 3; ++n) {
    pools.k.write(bytes * at(ids, n), k.data() + n * bytes, bytes);
    pools.v.write(bytes * at(ids, n), v.data() + n * bytes, bytes);
  }
}

// The calls read pages `ids` of a pool of `pages`.
struct Pages {
  std::uint8_t *k, *v;
  Index pages;
};

Pages pages_of(const Pools& pools) { return {pools.k.data(), pools.v.data(), pools.pages}; }

void use_pages(RawCall& call, const Pages& pool, const std::vector<std::int32_t>& ids,
               bool head_major) {
  call.kv.k = pool.k;
  call.kv.v = pool.v;
  call.kv.page_size = kPage;
  call.kv.num_pages = pool.pages;
  call.kv.page_table = ids.data();
  call.kv.page_table_rows = 1;
  call.kv.page_table_width = static_cast<std::int32_t>(ids.size());
  call.kv.kv_len = 40;
  call.kv.k_batch_stride = call.kv.v_batch_stride = kPageElements;
  call.kv.k_token_stride = call.kv.v_token_stride = head_major ? kDim : kHeads * kDim;
  call.kv.k_head_stride = call.kv.v_head_stride = head_major ? kPage * kDim : kDim;
}

TEST(PublicCases, B04PageOffsetsPassTwoToTheThirtyTwo) {
  const Pools large(262146), small(3);
  if (!large.there()) GTEST_SKIP() << "not enough memory";
  const std::vector<std::int32_t> ids = {131071, 131072, 262144}, small_ids = {0, 1, 2};
  fill_pages(large, ids);
  fill_pages(small, small_ids);
  for (const bool head_major : {false, true}) {
    for (const Index q_len : {1, 20}) {
      RawCall a({kType, 1, q_len, 32, kHeads, kDim}), b({kType, 1, q_len, 32, kHeads, kDim});
      use_pages(a, pages_of(large), ids, head_major);
      use_pages(b, pages_of(small), small_ids, head_major);
      expect_same_bytes(a, b);
    }
  }
}

TEST(PublicCases, B04AppendWritesBeyondTwoToTheThirtyTwo) {
  const Pools pools(262146);
  if (!pools.there()) GTEST_SKIP() << "not enough memory";
  const Mapping row_memory(kHeads * kDim * 2), table(3 * 4);
  const std::vector<std::int32_t> ids = {131071, 131072, 262144};
  table.write(0, reinterpret_cast<const std::uint8_t*>(ids.data()), 3 * 4);
  RawCall call({kType, 1, 1, 32, kHeads, kDim});
  use_pages(call, pages_of(pools), ids, false);
  call.kv.page_table = reinterpret_cast<const std::int32_t*>(table.data());
  call.kv.kv_len = 34;
  const auto row = drawn(4, verify::kNewK, kType, kHeads * kDim);
  row_memory.write(0, row.data(), kHeads * kDim * 2);
  tw_new_kv rows{};
  rows.struct_size = sizeof rows;
  rows.k = rows.v = row_memory.data();
  rows.k_head_stride = rows.v_head_stride = kDim;
  tw_kv_append_args args{};
  args.struct_size = sizeof args;
  args.kv_dtype = kType;
  args.batch = args.q_len = 1;
  args.kv_heads = kHeads;
  args.head_dim = kDim;
  args.rows = &rows;
  args.kv = &call.kv;
  args.target = &call.target;
  ASSERT_EQ(tw_kv_append(&args), TW_OK) << tw_last_error();
  constexpr Index row_bytes = kHeads * kDim * 2, page_bytes = kPageElements * 2;
  std::vector<std::uint8_t> expected(page_bytes, 0);
  std::copy(row.begin(), row.end(), expected.begin() + row_bytes);
  EXPECT_EQ(pools.k.read(page_bytes * 262144, page_bytes), expected);
  EXPECT_EQ(pools.v.read(page_bytes * 262144, page_bytes), expected);
  EXPECT_EQ(pools.k.read(0, page_bytes), std::vector<std::uint8_t>(page_bytes, 0));
}

TEST(PublicCases, B79TokenOffsetsOfAFusedViewPassTwoToTheThirtyOne) {
  constexpr Index kTokens = 174827, kRow = 3 * 32 * kDim,
                  kFirst = 174720;  // a multiple of the key tile
  const Mapping fused(kTokens * kRow * 2);
  if (fused.data() == nullptr) GTEST_SKIP() << "not enough memory";
  auto tail = drawn(79, verify::kK, kType, (kTokens - kFirst) * kRow);
  fused.write(kFirst * kRow * 2, tail.data(), static_cast<Index>(tail.size()));
  RawCall whole({kType, 1, 1, 32, 32, kDim}), part({kType, 1, 1, 32, 32, kDim});
  for (RawCall* call : {&whole, &part}) {
    std::uint8_t* base = call == &whole ? fused.data() : tail.data();
    call->args.flags = TW_CAUSAL | TW_WINDOW_LEFT;
    call->args.window_left = 64;
    call->kv.k = base + 32 * kDim * 2;
    call->kv.v = base + 64 * kDim * 2;
    call->kv.k_token_stride = call->kv.v_token_stride = kRow;
    call->kv.k_head_stride = call->kv.v_head_stride = kDim;
    call->kv.kv_len = static_cast<std::int32_t>(call == &whole ? kTokens : kTokens - kFirst);
  }
  expect_same_bytes(whole, part);
}

TEST(PublicCases, B88PagesOfOneTokenBeyondTwoToTheThirtyOne) {
  constexpr Index kTokens = 2097154, kRow = kHeads * kDim;
  const Mapping k(kTokens * kRow * 2), v(kTokens * kRow * 2);
  if (k.data() == nullptr || v.data() == nullptr) GTEST_SKIP() << "not enough memory";
  const std::vector<std::int32_t> ids = {0, 2097151, 2097152}, small_ids = {0, 1, 2};
  auto small_k = drawn(88, verify::kK, kType, 3 * kRow),
       small_v = drawn(88, verify::kV, kType, 3 * kRow);
  for (Index n = 0; n < 3; ++n) {
    k.write(at(ids, n) * kRow * 2, small_k.data() + n * kRow * 2, kRow * 2);
    v.write(at(ids, n) * kRow * 2, small_v.data() + n * kRow * 2, kRow * 2);
  }
  RawCall a({kType, 1, 1, 32, kHeads, kDim}), b({kType, 1, 1, 32, kHeads, kDim});
  use_pages(a, {k.data(), v.data(), kTokens}, ids, false);
  use_pages(b, {small_k.data(), small_v.data(), 3}, small_ids, false);
  for (RawCall* call : {&a, &b}) {
    call->kv.page_size = 1;
    call->kv.k_batch_stride = call->kv.v_batch_stride = kRow;
    call->kv.kv_len = 3;
  }
  expect_same_bytes(a, b);
}

// One page repeated: a million keys in a pool of sixteen.
TEST(PublicCases, B109ScratchDoesNotGrowWithTheLength) {
  for (const Index kv_len : {65536, 131072, 1048576}) {
    std::vector<std::int32_t> table(static_cast<std::size_t>(kv_len / kPage), 0);
    auto k = drawn(109, verify::kK, kType, kPage * kDim),
         v = drawn(109, verify::kV, kType, kPage * kDim);
    RawCall call({kType, 1, 1, 8, 1, kDim});
    std::fill(call.q.begin(), call.q.end(), std::uint8_t{0});
    use_pages(call, {k.data(), v.data(), 1}, table, false);
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
