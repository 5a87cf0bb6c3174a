// tw_attention and its two queries under fuzz: structs of raw bytes for the functions that read no
// device memory, and calls that run in arenas of exactly the stated extents.
#pragma once

#include "tests/fuzz/abi_cache.h"

namespace tilewise::fuzz {

constexpr std::uint64_t kMostWorkspace = std::uint64_t{256} << 20;

// Every byte of every struct from the input; only the pointers to host structs lead somewhere.
inline void query_raw(Bytes& in) {
  tw_attention_args args;
  tw_kv_cache kv;
  tw_mask mask;
  tw_new_kv append;
  tw_target target;
  in.fill(&args, sizeof args);
  in.fill(&kv, sizeof kv);
  in.fill(&mask, sizeof mask);
  in.fill(&append, sizeof append);
  in.fill(&target, sizeof target);
  // Sizes beyond the structs would have the library look at memory that is not there.
  args.struct_size %= sizeof args + 1;
  kv.struct_size %= sizeof kv + 1;
  mask.struct_size %= sizeof mask + 1;
  append.struct_size %= sizeof append + 1;
  target.struct_size %= sizeof target + 1;
  args.kv = in.flag() ? &kv : nullptr;
  args.mask = in.flag() ? &mask : nullptr;
  args.append = in.flag() ? &append : nullptr;
  args.target = in.flag() ? &target : nullptr;
  std::uint64_t bytes = 0;
  if (tw_attention_workspace(&args, &bytes) == TW_OK) require(bytes <= kMostWorkspace);
  char text[64];
  std::size_t length = 0;
  if (tw_attention_explain(&args, text, sizeof text, &length) == TW_OK)
    require(std::strlen(text) < sizeof text);
}

struct AttentionCall {
  tw_attention_args args;
  tw_kv_cache kv;
  tw_mask mask;
  tw_new_kv append;
  tw_target target;
  tw_status_record status;
  bool has_mask, has_append;
};

inline void draw_shape(Bytes& in, tw_attention_args* a) {
  a->q_dtype = any_type(in);
  a->kv_dtype = in.flag() ? any_type(in) : TW_DTYPE_DEFAULT;
  a->o_dtype = in.flag() ? TW_DTYPE_FP32 : TW_DTYPE_DEFAULT;
  a->batch = in.mostly32(in.below(4));
  a->kv_heads = in.mostly32(1 + in.below(3));
  a->q_heads =
      in.mostly32(a->kv_heads > 0 && a->kv_heads < 100 ? a->kv_heads * (1 + in.below(3)) : 1);
  a->head_dim = in.mostly32(8 * (1 + in.below(6)));
  a->v_head_dim = in.flag() ? 0 : in.mostly32(8 * (1 + in.below(6)));
  a->max_kv_len = in.flag() ? 1 + in.mostly32(in.below(200)) % 1000 : 200;
  a->row_class = in.mostly32(in.below(3));
  a->variant = in.mostly32(in.below(4));
  a->flags = static_cast<std::uint32_t>(in.mostly(in.below(8)));
  a->window_left = in.mostly32(in.below(90));
  a->window_right = in.mostly32(in.below(9));
  a->scale = in.rarely() ? static_cast<float>(in.hostile()) : 0.0f;
  a->softcap = in.flag() ? 0.0f : static_cast<float>(in.below(40));
}

inline void draw_mask(Bytes& in, Arena& arena, const tw_attention_args& a, const RowCount& rows,
                      tw_mask* mask) {
  *mask = sized_struct<tw_mask>(in);
  mask->width = in.mostly32(in.below(120));
  mask->row_stride = in.flag() ? 0 : in.mostly(mask->width);
  mask->head_stride = in.flag() ? 0 : in.mostly(Index{mask->width} % 1000 * 7);
  if (in.flag()) mask->first_key = arena.integers(in, rows.batch, 50);
  const Index q_rows = rows.ragged ? rows.total_q : rows.q_len;
  if (in.flag()) {
    mask->bytes = 1 + in.below(250);
    auto* offsets = reinterpret_cast<std::int64_t*>(arena.sized(in, rows.batch, 8));
    for (Index r = 0; !arena.too_large && r < rows.batch; ++r)
      offsets[r] = in.mostly(in.below(250));
    mask->offset = offsets;
    mask->data = arena.sized(in, mask->bytes, 1);
    return;
  }
  mask->batch_stride = in.flag() ? 0 : in.mostly(Index{mask->width} % 1000 * 20);
  mask->data = static_cast<std::uint8_t*>(arena.tensor(in,
                                                       {{rows.batch, mask->batch_stride},
                                                        {a.q_heads, mask->head_stride},
                                                        {q_rows, mask->row_stride}},
                                                       mask->width, 1));
}

inline void draw_rows_of_q(Bytes& in, Arena& arena, const RowCount& rows, tw_attention_args* a) {
  const Index count = rows.ragged ? rows.total_q : rows.q_len;
  const Index v_dim = a->v_head_dim != 0 ? a->v_head_dim : a->head_dim;
  const auto tensor = [&](Index dim, Index element_bytes, Index* batch, Index* token, Index* head) {
    *head = in.mostly(dim + 2 * in.below(2));
    *token = in.mostly(a->q_heads % 1000 * (dim + 2));
    *batch = rows.ragged ? 0 : in.mostly(count % 1000 * (a->q_heads % 1000) * (dim + 2));
    return arena.tensor(in, {{rows.batch, *batch}, {count, *token}, {a->q_heads, *head}}, dim,
                        element_bytes);
  };
  a->q = tensor(a->head_dim, bytes_of(a->q_dtype, a->q_dtype), &a->q_batch_stride,
                &a->q_token_stride, &a->q_head_stride);
  a->o = tensor(v_dim, bytes_of(a->o_dtype, a->q_dtype), &a->o_batch_stride, &a->o_token_stride,
                &a->o_head_stride);
  if (in.flag())
    a->lse = static_cast<float*>(
        tensor(1, 4, &a->lse_batch_stride, &a->lse_row_stride, &a->lse_head_stride));
}

inline RowCount draw_row_count(Bytes& in, Arena& arena, tw_attention_args* a) {
  RowCount rows{a->batch, 0, 0, in.flag()};
  if (rows.ragged) {
    rows.total_q = a->total_q = in.mostly(in.below(40));
    a->max_q_len = in.flag() ? 0 : in.mostly32(in.below(40));
    a->q_indptr = arena.ascending(in, rows.batch + Index{1}, 20, rows.total_q);
  } else {
    rows.q_len = a->q_len = in.mostly32(in.below(20));
  }
  return rows;
}

inline AttentionCall draw_attention(Bytes& in, Arena& arena) {
  AttentionCall call{};
  call.args = sized_struct<tw_attention_args>(in);
  tw_attention_args* a = &call.args;
  draw_shape(in, a);
  const RowCount rows = draw_row_count(in, arena, a);
  draw_rows_of_q(in, arena, rows, a);
  const tw_dtype kv_type = a->kv_dtype != TW_DTYPE_DEFAULT ? a->kv_dtype : a->q_dtype;
  const CacheShape shape{
      a->batch, a->kv_heads,   a->head_dim, a->v_head_dim != 0 ? a->v_head_dim : a->head_dim,
      kv_type,  a->max_kv_len, false};
  call.kv = draw_cache(in, arena, shape);
  const Index row_count = rows.ragged ? rows.total_q : rows.batch * rows.q_len;
  call.has_mask = in.flag();
  if (call.has_mask) draw_mask(in, arena, *a, rows, &call.mask);
  call.has_append = in.flag();
  if (call.has_append) call.append = draw_rows(in, arena, shape, rows);
  if (in.flag()) {
    a->alibi_batch_stride = in.flag() ? 0 : in.mostly(a->q_heads);
    a->alibi_slopes =
        static_cast<float*>(arena.tensor(in, {{a->batch, a->alibi_batch_stride}}, a->q_heads, 4));
  }
  if (in.flag()) a->sinks = arena.floats(in, a->q_heads);
  if (in.flag()) a->q_start = arena.integers(in, a->batch, 200);
  if (in.flag()) a->q_positions = arena.integers(in, row_count, 200);
  call.target = sized_struct<tw_target>(in);
  call.target.threads = in.mostly32(1 + in.below(3));
  if (call.target.threads > 8) call.target.threads = 8;
  return call;
}

// More multiplications than a fuzz run has time for, mostly where a hostile batch met strides of
// zero. Lengths are small, or bounded by the extent of the pool.
inline bool too_long(const tw_attention_args& a) {
  const Index rows = a.q_indptr != nullptr ? a.total_q : times(a.batch, a.q_len);
  return times(times(rows, a.q_heads), a.head_dim) > 100000;
}

inline void run_attention(Bytes& in) {
  Arena arena;
  AttentionCall call = draw_attention(in, arena);
  tw_attention_args& a = call.args;
  a.kv = &call.kv;
  if (call.has_mask) a.mask = &call.mask;
  if (call.has_append) a.append = &call.append;
  a.target = &call.target;
  a.status = &call.status;
  std::uint64_t needed = 0;
  const tw_status status = tw_attention_workspace(&a, &needed);
  if (status == TW_OK) require(needed <= kMostWorkspace);
  if (arena.impossible) require(status != TW_OK);
  if (arena.too_large || needed > (8u << 20) || too_long(a)) return;
  const std::size_t rounded = (needed + 511) / 256 * 256;
  std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(256, rounded),
                                                        &std::free);
  std::memset(workspace.get(), 0xFF, rounded);
  a.workspace = workspace.get();
  a.workspace_bytes = needed;
  require(tw_attention(&a) == status);
}

}  // namespace tilewise::fuzz
