// How attention scales: decode with cache length, batch, page size and threads; prefill with the
// prompt's length and the head dim.
#include "micro/rates.h"

namespace tilewise::bench {
namespace {

tw_dtype dtype_of(std::int64_t argument) { return static_cast<tw_dtype>(argument); }

// Arguments: type, batch, keys, page size, threads.
void decode(benchmark::State& state) {
  Shape shape;
  shape.dtype = dtype_of(state.range(0));
  shape.batch = static_cast<std::int32_t>(state.range(1));
  shape.q_heads = 32;
  shape.kv_len = static_cast<std::int32_t>(state.range(2));
  shape.page_size = static_cast<std::int32_t>(state.range(3));
  run(state, *make_attention(shape, static_cast<std::int32_t>(state.range(4))));
}
BENCHMARK(decode)
    ->ArgNames({"type", "batch", "keys", "page", "threads"})
    ->ArgsProduct({{TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32},
                   {1},
                   {256, 1024, 4096, 16384},
                   {0, 16},
                   {1, 2}})
    ->ArgsProduct({{TW_DTYPE_BF16}, {8}, {256, 1024, 4096}, {1, 16, 64, 256}, {2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Arguments: type, rows of the prompt, head dim, threads.
void prefill(benchmark::State& state) {
  Shape shape;
  shape.dtype = dtype_of(state.range(0));
  shape.q_len = shape.kv_len = static_cast<std::int32_t>(state.range(1));
  shape.head_dim = static_cast<std::int32_t>(state.range(2));
  shape.causal = true;
  shape.head_major = true;
  run(state, *make_attention(shape, static_cast<std::int32_t>(state.range(3))));
}
BENCHMARK(prefill)
    ->ArgNames({"type", "rows", "dim", "threads"})
    ->ArgsProduct(
        {{TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32}, {32, 128, 512, 2048}, {128}, {1, 2}})
    ->ArgsProduct({{TW_DTYPE_BF16, TW_DTYPE_FP32}, {512}, {32, 64, 96, 192, 256, 512}, {2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Arguments: type, tokens, threads.
void qk_prep(benchmark::State& state) {
  Shape shape;
  shape.dtype = dtype_of(state.range(0));
  shape.q_heads = 32;
  shape.q_len = shape.kv_len = static_cast<std::int32_t>(state.range(1));
  run(state, *make_qk_prep(shape, static_cast<std::int32_t>(state.range(2))));
}
BENCHMARK(qk_prep)
    ->ArgNames({"type", "tokens", "threads"})
    ->ArgsProduct({{TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32}, {1, 16, 512, 4096}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace tilewise::bench
