// The small operations: memory-bound, so their figure is GB/s.
#include "micro/rates.h"

namespace tilewise::bench {
namespace {

constexpr std::int32_t kHeads = 8;
constexpr std::int32_t kDim = 128;
constexpr std::int64_t kRow = kHeads * kDim;

template <class Call>
void loop(benchmark::State& state, double bytes, Call&& call) {
  for (auto turn : state) {
    static_cast<void>(turn);
    call();
  }
  report_rates(state, 0.0, bytes);
}

// Arguments: type, rows.
void append(benchmark::State& state) {
  const auto dtype = static_cast<tw_dtype>(state.range(0));
  const std::int64_t rows = state.range(1);
  const Tensor fresh(dtype, 2 * rows * kRow, 1);
  const Tensor cached(dtype, 2 * rows * kRow, 2);
  auto new_kv = make<tw_new_kv>();
  new_kv.k = fresh.data();
  new_kv.v = fresh.at(rows * kRow);
  auto cache = make<tw_kv_cache>();
  cache.k = cached.data();
  cache.v = cached.at(rows * kRow);
  new_kv.k_token_stride = new_kv.v_token_stride = cache.k_token_stride = cache.v_token_stride =
      kRow;
  new_kv.k_head_stride = new_kv.v_head_stride = cache.k_head_stride = cache.v_head_stride = kDim;
  cache.kv_len = static_cast<std::int32_t>(rows);
  cache.kv_capacity = rows;
  auto args = make<tw_kv_append_args>();
  args.kv_dtype = dtype;
  args.batch = 1;
  args.q_len = static_cast<std::int32_t>(rows);
  args.kv_heads = kHeads;
  args.head_dim = kDim;
  args.rows = &new_kv;
  args.kv = &cache;
  loop(state, 4.0 * static_cast<double>(rows * kRow * dtype_bytes(dtype)),
       [&] { kv_append(args); });
}
BENCHMARK(append)
    ->ArgNames({"type", "rows"})
    ->ArgsProduct({{TW_DTYPE_BF16, TW_DTYPE_FP32}, {1, 64, 4096}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Arguments: states, rows.
void merge(benchmark::State& state) {
  const std::int64_t states = state.range(0);
  const std::int64_t rows = state.range(1);
  const Tensor partial(TW_DTYPE_FP32, states * rows * kRow, 1);
  const Tensor lse(TW_DTYPE_FP32, states * rows * kHeads, 2);
  const Tensor merged(TW_DTYPE_FP32, rows * kRow, 3);
  auto args = make<tw_merge_states_args>();
  args.dtype = TW_DTYPE_FP32;
  args.states = static_cast<std::int32_t>(states);
  args.heads = kHeads;
  args.v_head_dim = kDim;
  args.rows = rows;
  args.o = partial.data();
  args.o_state_stride = rows * kRow;
  args.o_row_stride = args.out_row_stride = kRow;
  args.o_head_stride = args.out_head_stride = kDim;
  args.lse = static_cast<const float*>(lse.data());
  args.lse_state_stride = rows * kHeads;
  args.lse_row_stride = kHeads;
  args.lse_head_stride = 1;
  args.out = merged.data();
  const double floats = static_cast<double>((states + 1) * rows * kRow);
  loop(state, 4.0 * floats, [&] { merge_states(args); });
}
BENCHMARK(merge)
    ->ArgNames({"states", "rows"})
    ->ArgsProduct({{2, 16}, {1, 64, 1024}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// Arguments: type, elements.
void soft_cap(benchmark::State& state) {
  const auto dtype = static_cast<tw_dtype>(state.range(0));
  const Tensor values(dtype, state.range(1), 1);
  auto args = make<tw_elementwise_args>();
  args.dtype = dtype;
  args.x = values.data();
  args.n = state.range(1);
  args.value = 30.0F;
  loop(state, 2.0 * static_cast<double>(args.n * dtype_bytes(dtype)), [&] { softcap(args); });
}
BENCHMARK(soft_cap)
    ->ArgNames({"type", "elements"})
    ->ArgsProduct({{TW_DTYPE_BF16, TW_DTYPE_FP32}, {1 << 12, 1 << 20}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace tilewise::bench
