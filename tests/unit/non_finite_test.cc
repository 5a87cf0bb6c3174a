// Non-finite keys and values that rows do see: every variant shows them where the oracle does, in o
// and lse, and nowhere else, whatever rows share a block or a tile.
#include <gtest/gtest.h>
#include <tilewise/tilewise.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace tilewise::testing {
namespace {

constexpr int kKeys = 200;
constexpr int kDim = 64;
constexpr int kHeads = 2;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Result {
  std::vector<float> o, lse;
};

// Causal attention of the last `q_len` rows, one value of head 0 replaced.
class Call {
 public:
  Call(int q_len, bool in_values, int key, float value)
      : q_len_(q_len),
        q_(static_cast<std::size_t>(q_len * kHeads * kDim), 0.1f),
        k_(kKeys * kHeads * kDim, 0.5f),
        v_(kKeys * kHeads * kDim, 0.25f) {
    (in_values ? v_ : k_)[static_cast<std::size_t>(key * kHeads * kDim + 3)] = value;
  }

  // Empty if the machine cannot run the variant.
  Result run(int variant) {
    Result result{std::vector<float>(q_.size(), 7.0f),
                  std::vector<float>(static_cast<std::size_t>(q_len_ * kHeads), 7.0f)};
    tw_kv_cache kv{};
    kv.struct_size = sizeof kv;
    kv.k = k_.data(), kv.v = v_.data();
    kv.k_token_stride = kv.v_token_stride = kHeads * kDim;
    kv.k_head_stride = kv.v_head_stride = kDim;
    kv.kv_capacity = kv.kv_len = kKeys;
    tw_attention_args args{};
    args.struct_size = sizeof args;
    args.flags = TW_CAUSAL;
    args.q_dtype = TW_DTYPE_FP32;
    args.batch = 1, args.q_heads = args.kv_heads = kHeads, args.head_dim = kDim;
    args.q_len = q_len_;
    args.max_kv_len = kKeys;
    args.q = q_.data(), args.o = result.o.data(), args.lse = result.lse.data();
    args.q_token_stride = args.o_token_stride = kHeads * kDim;
    args.q_head_stride = args.o_head_stride = kDim;
    args.lse_row_stride = kHeads, args.lse_head_stride = 1;
    args.kv = &kv;
    args.variant = variant;
    std::uint64_t bytes = 0;
    if (tw_attention_workspace(&args, &bytes) != TW_OK) return {};
    const std::unique_ptr<void, decltype(&std::free)> workspace(
        std::aligned_alloc(256, (bytes + 256) / 256 * 256), &std::free);
    args.workspace = workspace.get();
    args.workspace_bytes = bytes;
    EXPECT_EQ(tw_attention(&args), TW_OK) << tw_last_error();
    return result;
  }

 private:
  int q_len_;
  std::vector<float> q_, k_, v_;
};

std::string kind_of(float x) { return std::isnan(x) ? "nan" : std::isinf(x) ? "inf" : "finite"; }

void expect_same_kinds(const std::vector<float>& got, const std::vector<float>& want,
                       const std::string& what) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(kind_of(got[i]), kind_of(want[i])) << what << " " << i;
  }
}

TEST(NonFinite, ReachesTheRowsThatSeeItAndNoOthers) {
  for (const int q_len : {1, 5, 40}) {
    for (const bool in_values : {false, true}) {
      for (const int key : {5, 130, 190}) {
        for (const float value : {kNaN, kInf}) {
          Call call(q_len, in_values, key, value);
          const Result want = call.run(1);
          for (const int variant : {2, 3}) {
            const std::string what = std::to_string(q_len) + " rows, key " + std::to_string(key) +
                                     (in_values ? " of V, variant " : " of K, variant ") +
                                     std::to_string(variant);
            const Result got = call.run(variant);
            ASSERT_EQ(got.o.size(), want.o.size()) << what;
            expect_same_kinds(got.o, want.o, what + " o");
            expect_same_kinds(got.lse, want.lse, what + " lse");
          }
        }
      }
    }
  }
}

TEST(NonFinite, IsThereToBeSeen) {
  const Result want = Call(40, false, 190, kNaN).run(1);
  int bad = 0;
  for (const float x : want.o) bad += std::isfinite(x) ? 0 : 1;
  EXPECT_EQ(bad, 10 * kDim);  // rows at 190 .. 199 of one head
}

}  // namespace
}  // namespace tilewise::testing
