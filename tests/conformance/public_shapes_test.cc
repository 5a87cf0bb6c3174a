// Public bug reports about shapes, batches, variants and bounds. Names carry the ids of
// docs/cases.md.
#include <algorithm>
#include <cstring>

#include "tests/support/attend.h"
#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

using verify::Request;
using verify::Storage;

TEST(PublicCases, B25HeadCountsThatNoTileDivides) {
  for (const Index heads : {28, 14, 20, 36, 56}) {
    Case c = make_case(TW_DTYPE_BF16, heads, heads % 4 == 0 ? 4 : 2, 128, {{33, 70}});
    c.storage = Storage::kBlockTable;
    c.causal = true;
    expect_right(Problem(c));
  }
}

// A fused QKV tensor [rows][(q_heads + 2 kv_heads) * dim], NaN everywhere else, against packed
// copies.
TEST(PublicCases, B26SlicesOfAFusedTensorAreTheirPackedCopies) {
  constexpr Index kRows = 9, kQHeads = 4, kKvHeads = 2, kDim = 64,
                  kWide = (kQHeads + 2 * kKvHeads) * kDim + 8;
  for (const tw_dtype type : all_types()) {
    const Index size = verify::element_bytes(type);
    RawCall packed({type, 1, kRows, kQHeads, kKvHeads, kDim}),
        fused({type, 1, kRows, kQHeads, kKvHeads, kDim});
    auto k = drawn(26, verify::kK, type, kRows * kKvHeads * kDim),
         v = drawn(26, verify::kV, type, kRows * kKvHeads * kDim);
    const verify::Block all(kRows * kWide * size);
    for (Index row = 0; row < kRows; ++row) {
      std::uint8_t* to = all.data() + row * kWide * size;
      constexpr Index q_row = kQHeads * kDim, kv_row = kKvHeads * kDim;
      std::memcpy(to, packed.q.data() + row * q_row * size, static_cast<std::size_t>(q_row * size));
      std::memcpy(to + q_row * size, k.data() + row * kv_row * size,
                  static_cast<std::size_t>(kv_row * size));
      std::memcpy(to + (q_row + kv_row) * size, v.data() + row * kv_row * size,
                  static_cast<std::size_t>(kv_row * size));
    }
    packed.kv.k = k.data();
    packed.kv.v = v.data();
    packed.kv.k_token_stride = packed.kv.v_token_stride = kKvHeads * kDim;
    fused.args.q = all.data();
    fused.args.q_token_stride = fused.kv.k_token_stride = fused.kv.v_token_stride = kWide;
    fused.kv.k = all.data() + kQHeads * kDim * size;
    fused.kv.v = all.data() + (kQHeads + kKvHeads) * kDim * size;
    for (RawCall* call : {&packed, &fused}) {
      call->kv.k_head_stride = call->kv.v_head_stride = kDim;
      call->kv.kv_len = kRows;
      ASSERT_EQ(call->run(), TW_OK) << call->error();
    }
    EXPECT_EQ(packed.bytes(), fused.bytes());
  }
}

TEST(PublicCases, B26TransposedAndReversedViewsWork) {
  Case c = make_case(TW_DTYPE_BF16, 4, 4, 64, {{9, 9}, {9, 9}});
  const auto expected = verify::attend(Problem(c)).bytes;
  for (const verify::QOrder order : {verify::QOrder::kHeadMajor, verify::QOrder::kReversedHeads}) {
    c.q_order = order;
    c.order = verify::Order::kHeadMajor;
    EXPECT_EQ(verify::attend(Problem(c)).bytes, expected);
  }
}

TEST(PublicCases, B28TailsOfTilesAreNotRead) {
  for (const Index q_len : {1, 9, 12, 63, 64, 65}) {
    for (const Index kv_len : {1, 9, 12, 63, 64, 65, 503}) {
      Case c = make_case(all_types()[static_cast<std::size_t>((q_len + kv_len) % 3)], 20, 20, 32,
                         {{q_len, kv_len}});
      c.causal = (q_len + kv_len) % 2 == 0;
      if (q_len * kv_len > 9000) c.q_heads = c.kv_heads = 4;
      expect_right(Problem(c));
    }
  }
  Case large = make_case(TW_DTYPE_BF16, 2, 2, 128, {{1001, 503}});
  expect_right(Problem(large));
}

// Repeats with two workers and with shared chunks, where a race would show.
void expect_equal_repeats(verify::Call& call, int variant, int repeats) {
  const auto first = call.run({variant, TW_DTYPE_DEFAULT, 2}).bytes;
  for (int n = 0; n < repeats; ++n)
    ASSERT_EQ(call.run({n % 2 != 0 ? 0 : variant, TW_DTYPE_DEFAULT, 2}).bytes.size(), first.size());
  for (int n = 0; n < repeats; ++n)
    ASSERT_EQ(call.run({variant, TW_DTYPE_DEFAULT, 2}).bytes, first) << n;
}

TEST(PublicCases, B65TwoHundredRepeatsGiveTheSameBytes) {
  for (const Index dim : {64, 128, 256}) {
    for (const Index kv_len : {1, 333, 1501, 4097}) {
      for (const Index q_len : {1, 18}) {
        if (q_len > 1 && kv_len > 400) continue;
        const Problem p(make_case(
            TW_DTYPE_BF16, 4, 2, dim,
            std::vector<Request>(static_cast<std::size_t>(1 + kv_len % 7), {q_len, kv_len})));
        verify::Call call(p);
        for (const auto& [variant, twin] : usable_twins(p))
          expect_equal_repeats(call, variant, kv_len > 400 ? 20 : 200);
      }
    }
  }
}

TEST(PublicCases, B70RequestsWithoutRowsAndEmptyBatches) {
  for (const Storage storage : {Storage::kContiguous, Storage::kCsr}) {
    Case c = make_case(TW_DTYPE_BF16, 4, 2, 64, {{0, 9}, {3, 9}, {0, 0}, {1, 4}});
    c.ragged = true;
    c.storage = storage;
    expect_right(Problem(c));
    c.append = verify::Append::kSame;
    expect_right(Problem(c));
    c.append = verify::Append::kNone;
    c.requests = {{0, 5}, {0, 0}};
    expect_right(Problem(c));
  }
}

TEST(PublicCases, B70ZeroSizesSucceedWithNullPointers) {
  RawCall call({TW_DTYPE_BF16, 0, 0, 4, 2, 64});
  call.args.q = nullptr;
  EXPECT_EQ(call.run(), TW_OK) << call.error();
  call.args.batch = 3;  // of no rows each
  EXPECT_EQ(call.run(), TW_OK) << call.error();
  tw_merge_states_args merge{};
  merge.struct_size = sizeof merge;
  merge.dtype = TW_DTYPE_BF16;
  merge.heads = 4;
  merge.v_head_dim = 64;
  merge.states = 2;
  EXPECT_EQ(tw_merge_states(&merge), TW_OK) << tw_last_error();
  tw_rope_table table{};
  table.struct_size = sizeof table;
  tw_rope_args rope{};
  rope.struct_size = sizeof rope;
  rope.dtype = TW_DTYPE_BF16;
  rope.heads = 4;
  rope.head_dim = 64;
  rope.rope = &table;
  EXPECT_EQ(tw_rope(&rope), TW_OK) << tw_last_error();
  tw_qk_prep_args prep{};
  prep.struct_size = sizeof prep;
  prep.dtype = TW_DTYPE_BF16;
  prep.head_dim = 64;
  EXPECT_EQ(tw_qk_prep(&prep), TW_OK) << tw_last_error();
}

TEST(PublicCases, B73EveryForcedVariantIsRightAtEveryBatch) {
  for (const Index page_size : {32, 64}) {
    for (Index batch = 1; batch <= 16; batch += 5) {
      Case c = make_case(TW_DTYPE_BF16, 8, 2, 256,
                         std::vector<Request>(static_cast<std::size_t>(batch), {1, 700}));
      c.storage = Storage::kBlockTable;
      c.page_size = page_size;
      expect_right(Problem(c));
    }
  }
}

TEST(PublicCases, B73ExplainNamesTheVariantThatRuns) {
  const Problem p(make_case(TW_DTYPE_BF16, 8, 2, 64, {{1, 100}}));
  verify::Call call(p);
  std::vector<int> numbers = usable_variants(p);
  numbers.push_back(0);
  if (!verify::on_cuda()) numbers.push_back(verify::kReference);
  for (const int variant : numbers) {
    call.args().variant = variant;
    char text[4096];
    std::size_t length = 0;
    ASSERT_EQ(tw_attention_explain(&call.args(), text, sizeof text, &length), TW_OK)
        << tw_last_error();
    EXPECT_EQ(std::strlen(text), length);
    EXPECT_NE(std::string(text).find("variant: "), std::string::npos) << text;
  }
  call.args().variant = 99;
  EXPECT_NE(tw_attention_explain(&call.args(), nullptr, 0, nullptr), TW_OK);
  EXPECT_NE(std::string(tw_last_error()).find("variant"), std::string::npos) << tw_last_error();
}

TEST(PublicCases, B74TheBoundDoesNotChooseTheResult) {
  Case c = make_case(TW_DTYPE_BF16, 32, 8, 128, {{1, 1000}});
  c.storage = Storage::kBlockTable;
  const Problem p(c);
  verify::Call call(p);
  const auto expected = call.run().bytes;
  for (const std::int32_t bound : {262144, 100000, 4096}) {
    call.args().max_kv_len = bound;
    EXPECT_EQ(call.run().bytes, expected) << bound;
  }
}

// Four calls of the same shape, in all orders: none may run with what another left behind.
TEST(PublicCases, B76NothingIsRememberedFromTheCallBefore) {
  std::vector<Case> cases(4, make_case(TW_DTYPE_BF16, 4, 2, 64, {{2, 150}}));
  cases[1].q_type = cases[1].kv_type = TW_DTYPE_FP16;
  cases[2].storage = Storage::kBlockTable;
  cases[2].order = verify::Order::kInterleaved;
  cases[3].scale = 0.3f;
  cases[3].softcap = 5;
  cases[3].window_left = 60;
  std::vector<Problem> problems(cases.begin(), cases.end());
  std::vector<std::vector<std::uint8_t>> expected;
  for (const Problem& p : problems) {
    expect_right(p);
    expected.push_back(verify::attend(p).bytes);
  }
  std::vector<std::size_t> order = {0, 1, 2, 3};
  do {
    for (const std::size_t n : order) EXPECT_EQ(verify::attend(problems[n]).bytes, expected[n]);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(PublicCases, B82ARowIsTheSameInEveryBatch) {
  for (const Index q_len : {1, 20}) {
    Case alone = make_case(TW_DTYPE_BF16, 4, 2, 64, {{q_len, 777, 50}});
    alone.ragged = true;
    const Problem one(alone);
    for (const int variant : usable_variants(one)) {
      const auto expected = verify::attend(one, {variant}).bytes;
      for (const Index batch : {2, 8, 33}) {
        Case c = alone;
        for (Index n = 1; n < batch; ++n)
          c.requests.insert(c.requests.begin(), {1, 1 + n * 151 % 5000, n});
        const Problem p(c);
        EXPECT_EQ(request_bytes(p, verify::attend(p, {variant}), batch - 1), expected) << batch;
      }
    }
  }
}

TEST(PublicCases, B83TheWorkspaceIsBoundedAndItsSizeChecked) {
  RawCall call({TW_DTYPE_BF16, 1, 1, 128, 128, 128});
  call.args.batch = 4096;
  call.args.max_kv_len = 1 << 20;
  alignas(256) static std::uint8_t nothing[256];
  call.kv.k = call.kv.v = call.args.o = nothing;
  call.kv.k_token_stride = call.kv.v_token_stride = 128 * 128;
  call.kv.k_head_stride = call.kv.v_head_stride = 128;
  call.kv.kv_len = 1 << 20;
  for (const verify::VariantInfo& info : verify::variants()) {
    call.args.variant = info.number;
    std::uint64_t bytes = 0;
    const tw_status status = tw_attention_workspace(&call.args, &bytes);
    // A variant that keeps partial results may say that these are too many; it may not ask for
    // more.
    EXPECT_TRUE(status == TW_OK || info.twin != 0 || !info.required) << tw_last_error();
    EXPECT_LE(bytes, std::uint64_t{256} << 20);
  }
  call.args.variant = 0;
  std::uint64_t bytes = 0;
  EXPECT_EQ(tw_attention_workspace(&call.args, &bytes), TW_OK) << tw_last_error();
  EXPECT_LE(bytes, std::uint64_t{256} << 20);
}

TEST(PublicCases, B83OneByteTooFewIsRefusedWithBothNumbers) {
  const Problem p(make_case(TW_DTYPE_BF16, 8, 2, 64, {{2, 900}, {2, 30}}));
  for (const int variant : usable_variants(p)) {
    verify::Call call(p);
    tw_attention_args& args = call.args();
    std::vector<float> o(2 * 2 * 8 * 66 * 2 + 16, -1.0f);
    args.o = o.data();
    args.variant = variant;
    std::uint64_t needed = 0;
    ASSERT_EQ(tw_attention_workspace(&args, &needed), TW_OK) << tw_last_error();
    ASSERT_GT(needed, 0u);
    const verify::Block workspace(static_cast<Index>(needed));
    args.workspace = workspace.data();
    args.workspace_bytes = needed - 1;
    EXPECT_EQ(tw_attention(&args), TW_WORKSPACE_TOO_SMALL);
    const std::string text = tw_last_error();
    EXPECT_NE(text.find(std::to_string(needed)), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(needed - 1)), std::string::npos) << text;
    EXPECT_TRUE(std::all_of(o.begin(), o.end(), [](float x) { return x == -1.0f; }));
    EXPECT_TRUE(workspace.is_all(verify::kPoison));
  }
}

TEST(PublicCases, B103OneLengthDoesNotTouchTheOthers) {
  const auto with_first = [](Index first) {
    Case c = make_case(TW_DTYPE_BF16, 32, 8, 128, {{1, first}, {1, 1000}, {1, 120}, {1, 500}});
    c.storage = Storage::kBlockTable;
    return Problem(c);
  };
  const Problem a = with_first(900), b = with_first(800);
  for (const int variant : usable_variants(a)) {
    const Answer of_a = verify::attend(a, {variant}), of_b = verify::attend(b, {variant});
    for (Index r = 1; r < 4; ++r)
      EXPECT_EQ(request_bytes(a, of_a, r), request_bytes(b, of_b, r)) << r;
  }
}

TEST(PublicCases, B112SmallHeadDims) {
  for (const Index dim : {8, 16, 32}) {
    for (const bool causal : {false, true}) {
      for (const tw_dtype type : all_types()) {
        Case c = make_case(type, 2, 1, dim, {{128, 128}});
        c.causal = causal;
        expect_right(Problem(c));
      }
      Case c = make_case(TW_DTYPE_BF16, 1, 1, dim, {{300, 2048}});
      c.causal = causal;
      expect_right(Problem(c));
    }
  }
}

TEST(PublicCases, B113CapacityDoesNotChangeTheResult) {
  constexpr Index kHeads = 2, kDim = 128, kLen = 4096;
  auto k = drawn(113, verify::kK, TW_DTYPE_BF16, kLen * kHeads * kDim);
  auto v = drawn(113, verify::kV, TW_DTYPE_BF16, kLen * kHeads * kDim);
  std::vector<std::vector<std::uint8_t>> results;
  for (const Index capacity : {40960, 262144}) {
    const Mapping k_cache(capacity * kHeads * kDim * 2), v_cache(capacity * kHeads * kDim * 2);
    ASSERT_NE(v_cache.data(), nullptr);
    k_cache.write(0, k.data(), static_cast<Index>(k.size()));
    v_cache.write(0, v.data(), static_cast<Index>(v.size()));
    const std::vector<std::int32_t> lens = {kLen};
    RawCall call({TW_DTYPE_BF16, 1, 1, 8, kHeads, kDim});
    call.kv.k = k_cache.data();
    call.kv.v = v_cache.data();
    call.kv.kv_lens = lens.data();
    call.kv.kv_capacity = capacity;
    call.kv.k_token_stride = call.kv.v_token_stride = kHeads * kDim;
    call.kv.k_head_stride = call.kv.v_head_stride = kDim;
    ASSERT_EQ(call.run(), TW_OK) << call.error();
    results.push_back(call.bytes());
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace tilewise::tests
