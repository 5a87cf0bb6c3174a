// Windowed causal prefill of one prompt over a contiguous float32 cache, from C++: describe, ask
// for the workspace, call, read the answer. Build it against an installed Tilewise
// (examples/CMakeLists.txt).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <tilewise/tilewise.hpp>
#include <vector>

namespace {

constexpr int kRows = 300, kQHeads = 8, kKvHeads = 2, kDim = 64, kWindow = 128;

tw_kv_cache describe_cache(std::vector<float>& k, std::vector<float>& v) {
  auto kv = tilewise::make<tw_kv_cache>();
  kv.k = k.data(), kv.v = v.data();
  kv.k_token_stride = kv.v_token_stride = kKvHeads * kDim;
  kv.k_head_stride = kv.v_head_stride = kDim;
  kv.kv_len = kRows;
  return kv;
}

// The library wants 256-byte alignment; std::vector promises less.
tw_attention_args use_workspace(tw_attention_args args, std::vector<std::byte>& memory) {
  const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
  args.workspace = memory.data() + (256 - start % 256) % 256;
  args.workspace_bytes = memory.size() - 256;
  return args;
}

}  // namespace

int main() {
  std::vector<float> q(kRows * kQHeads * kDim), o(q.size());
  std::vector<float> k(kRows * kKvHeads * kDim), v(k.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / (kKvHeads * kDim));

  const tw_kv_cache cache = describe_cache(k, v);
  auto args = tilewise::make<tw_attention_args>();
  args.flags = TW_CAUSAL | TW_WINDOW_LEFT;
  args.window_left = kWindow - 1;  // kWindow keys with the row's own
  args.q_dtype = TW_DTYPE_FP32;
  args.batch = 1, args.q_len = kRows, args.q_heads = kQHeads, args.kv_heads = kKvHeads;
  args.head_dim = kDim;
  args.q = q.data(), args.q_token_stride = kQHeads * kDim, args.q_head_stride = kDim;
  args.o = o.data(), args.o_token_stride = kQHeads * kDim, args.o_head_stride = kDim;
  args.kv = &cache;
  try {
    std::vector<std::byte> memory(tilewise::attention_workspace(args) + 256);
    tilewise::attention(use_workspace(args, memory));
  } catch (const tilewise::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  // q = 0: each row is the mean of the values that it sees, here the numbers of the keys.
  const double last = static_cast<double>(o[(kRows - 1) * kQHeads * kDim]);
  std::printf("the last row's keys have the mean number %g\n", last);
  const double want = (kRows - 1 + kRows - kWindow) / 2.0;
  return last > want - 1e-3 && last < want + 1e-3 ? 0 : 1;
}
