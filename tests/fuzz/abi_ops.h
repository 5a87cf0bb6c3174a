// The small operations under fuzz: each in arenas of exactly the extents that its arguments state.
#pragma once

#include "tests/fuzz/abi_cache.h"

namespace tilewise::fuzz {

struct Rows3 {
  Index batch, token, head;
};

// Strides of [batch][tokens][heads] rows; outputs get the natural ones with padding.
inline Rows3 draw_strides(Bytes& in, const RowCount& rows, Index heads, Index dim) {
  Rows3 s{0, 0, 0};
  s.head = in.mostly(dim + 2 * in.below(2));
  s.token = in.mostly(heads % 1000 * (dim + 2));
  s.batch = rows.ragged ? 0 : in.mostly(rows.q_len % 1000 * (heads % 1000) * (dim + 2));
  return s;
}

inline void* draw_tensor(Bytes& in, Arena& arena, const RowCount& rows, Index heads, Index dim,
                         tw_dtype type, const Rows3& s) {
  return arena.tensor(
      in,
      {{rows.batch, s.batch}, {rows.ragged ? rows.total_q : rows.q_len, s.token}, {heads, s.head}},
      dim, bytes_of(type, type));
}

template <class Args>
RowCount draw_tokens(Bytes& in, Arena& arena, Args* a) {
  a->batch = in.mostly32(in.below(4));
  RowCount rows{a->batch, 0, 0, in.flag()};
  if (rows.ragged) {
    rows.total_q = a->total_q = in.mostly(in.below(20));
    a->q_indptr = arena.ascending(in, rows.batch + Index{1}, 9, rows.total_q);
  } else {
    rows.q_len = a->q_len = in.mostly32(in.below(9));
  }
  return rows;
}

inline Index row_count(const RowCount& rows) {
  return rows.ragged ? rows.total_q : rows.batch * rows.q_len;
}

inline tw_rope_table draw_rope_table(Bytes& in, Arena& arena) {
  auto t = sized_struct<tw_rope_table>(in);
  t.dtype = in.flag() ? any_type(in) : TW_DTYPE_DEFAULT;
  t.rotary_dim = in.mostly32(2 * in.below(20));
  t.rows = in.mostly(in.below(30));
  t.pairs = in.mostly32(in.below(2));
  t.cos_row_stride = in.mostly(t.rotary_dim);
  t.sin_row_stride = in.mostly(t.rotary_dim);
  t.cos_element_stride = in.mostly(in.below(3));
  t.sin_element_stride = in.mostly(in.below(3));
  const auto table = [&](Index row_stride, Index element_stride) {
    const Index step = element_stride != 0 ? element_stride : 1;
    return arena.tensor(in, {{t.rows, row_stride}, {t.rotary_dim / 2, step}}, 1,
                        bytes_of(t.dtype, TW_DTYPE_FP32));
  };
  t.cos = table(t.cos_row_stride, t.cos_element_stride);
  t.sin = table(t.sin_row_stride, t.sin_element_stride);
  return t;
}

// Runs `call` unless its memory is more than a fuzz run has; what no machine has must be refused.
template <class Call>
void run_within(const Arena& arena, Call&& call) {
  if (arena.impossible) {
    require(call() != TW_OK);
  } else if (!arena.too_large) {
    call();
  }
}

inline void run_rope(Bytes& in) {
  Arena arena;
  auto a = sized_struct<tw_rope_args>(in);
  a.dtype = any_type(in);
  a.heads = in.mostly32(in.below(4));
  a.head_dim = in.mostly32(8 * (1 + in.below(6)));
  const RowCount rows = draw_tokens(in, arena, &a);
  const Rows3 x = draw_strides(in, rows, a.heads, a.head_dim),
              out = draw_strides(in, rows, a.heads, a.head_dim);
  a.x_batch_stride = x.batch, a.x_token_stride = x.token, a.x_head_stride = x.head;
  a.out_batch_stride = out.batch, a.out_token_stride = out.token, a.out_head_stride = out.head;
  a.x = draw_tensor(in, arena, rows, a.heads, a.head_dim, a.dtype, x);
  if (in.flag()) a.out = draw_tensor(in, arena, rows, a.heads, a.head_dim, a.dtype, out);
  const tw_rope_table table = draw_rope_table(in, arena);
  a.rope = &table;
  if (in.flag()) a.positions = arena.integers(in, row_count(rows), 40);
  if (in.flag()) a.start = arena.integers(in, rows.batch, 40);
  tw_status_record status{};
  if (in.flag()) a.status = &status;
  run_within(arena, [&] { return tw_rope(&a); });
}

inline void run_append(Bytes& in) {
  Arena arena;
  auto a = sized_struct<tw_kv_append_args>(in);
  a.kv_dtype = any_type(in);
  a.kv_heads = in.mostly32(1 + in.below(3));
  a.head_dim = in.mostly32(8 * (1 + in.below(4)));
  a.v_head_dim = in.flag() ? 0 : in.mostly32(8 * (1 + in.below(4)));
  a.max_kv_len = 1 + static_cast<std::int32_t>(in.below(200));
  RowCount rows = draw_tokens(in, arena, &a);
  const Index form = in.below(3);
  if (form != 0) {
    rows = {1, 0, in.mostly(in.below(20)), true};  // of no request in particular
    a.q_len = 0;
    a.q_indptr = nullptr;
    a.total_q = rows.total_q;
    if (form == 1) a.slot_mapping = arena.integers(in, rows.total_q, 60);
    if (form == 2) a.positions = arena.integers(in, rows.total_q, 60);
    if (form == 2) a.batch_indices = arena.integers(in, rows.total_q, a.batch < 100 ? a.batch : 1);
  }
  const CacheShape shape{
      a.batch,    a.kv_heads,   a.head_dim, a.v_head_dim != 0 ? a.v_head_dim : a.head_dim,
      a.kv_dtype, a.max_kv_len, form == 1};
  const tw_kv_cache kv = draw_cache(in, arena, shape);
  const tw_new_kv new_rows = draw_rows(in, arena, shape, rows);
  a.kv = &kv;
  a.rows = &new_rows;
  tw_status_record status{};
  if (in.flag()) a.status = &status;
  run_within(arena, [&] { return tw_kv_append(&a); });
}

inline void draw_prep_tensors(Bytes& in, Arena& arena, const RowCount& rows, tw_qk_prep_args* a) {
  const auto one = [&](bool wanted, Index heads, Index* batch, Index* token, Index* head) -> void* {
    const Rows3 s = draw_strides(in, rows, heads, a->head_dim);
    *batch = s.batch, *token = s.token, *head = s.head;
    return wanted ? draw_tensor(in, arena, rows, heads, a->head_dim, a->dtype, s) : nullptr;
  };
  const bool raw_k = a->v_mode == TW_V_FROM_RAW_K;
  a->q = one(in.flag(), a->q_heads, &a->q_batch_stride, &a->q_token_stride, &a->q_head_stride);
  a->k = one(in.flag() || raw_k, a->kv_heads, &a->k_batch_stride, &a->k_token_stride,
             &a->k_head_stride);
  a->v = one(in.flag() && !raw_k, a->kv_heads, &a->v_batch_stride, &a->v_token_stride,
             &a->v_head_stride);
  a->q_out = one(in.flag(), a->q_heads, &a->q_out_batch_stride, &a->q_out_token_stride,
                 &a->q_out_head_stride);
  a->k_out = one(in.flag(), a->kv_heads, &a->k_out_batch_stride, &a->k_out_token_stride,
                 &a->k_out_head_stride);
  a->v_out = one(in.flag(), a->kv_heads, &a->v_out_batch_stride, &a->v_out_token_stride,
                 &a->v_out_head_stride);
}

inline void run_prep(Bytes& in) {
  Arena arena;
  auto a = sized_struct<tw_qk_prep_args>(in);
  a.dtype = any_type(in);
  for (tw_dtype* type : {&a.kv_dtype, &a.weight_dtype}) {
    if (in.flag()) *type = any_type(in);
  }
  a.q_heads = in.mostly32(in.below(4));
  a.kv_heads = in.mostly32(in.below(3));
  a.head_dim = in.mostly32(8 * (1 + in.below(5)));
  a.max_kv_len = 1 + static_cast<std::int32_t>(in.below(200));
  for (std::int32_t* mode : {&a.norm, &a.rounding, &a.v_mode}) *mode = in.mostly32(in.below(3));
  a.eps = in.rarely() ? static_cast<float>(in.hostile()) : 1e-6f;
  const RowCount rows = draw_tokens(in, arena, &a);
  draw_prep_tensors(in, arena, rows, &a);
  a.q_weight = arena.sized(in, a.head_dim, 4);
  a.k_weight = arena.sized(in, a.head_dim, 4);
  const tw_rope_table table = draw_rope_table(in, arena);
  if (in.flag()) a.rope = &table;
  if (in.flag()) a.positions = arena.integers(in, row_count(rows), 40);
  if (in.flag()) a.start = arena.integers(in, rows.batch, 40);
  const bool by_slot = in.flag();
  const tw_dtype kv_type = a.kv_dtype != TW_DTYPE_DEFAULT ? a.kv_dtype : a.dtype;
  const tw_kv_cache kv = draw_cache(
      in, arena, {a.batch, a.kv_heads, a.head_dim, a.head_dim, kv_type, a.max_kv_len, by_slot});
  const bool cached = in.flag();
  if (cached) a.kv = &kv;
  if (by_slot) a.slot_mapping = arena.integers(in, row_count(rows), 60);
  tw_status_record status{};
  if (in.flag()) a.status = &status;
  // An impossible extent of a tensor that this call ends up not using is no reason to refuse.
  if (!arena.impossible && !arena.too_large) tw_qk_prep(&a);
}

inline void run_merge(Bytes& in) {
  Arena arena;
  auto a = sized_struct<tw_merge_states_args>(in);
  a.dtype = any_type(in);
  a.out_dtype = in.flag() ? any_type(in) : TW_DTYPE_DEFAULT;
  a.states = in.mostly32(in.below(5));
  a.heads = in.mostly32(in.below(4));
  a.v_head_dim = in.mostly32(8 * (1 + in.below(4)));
  a.rows = in.mostly(in.below(6));
  const Index wide = a.heads % 1000 * (Index{a.v_head_dim} + 2);
  a.o_head_stride = in.mostly(a.v_head_dim + 2 * in.below(2));
  a.o_row_stride = in.mostly(wide);
  a.o_state_stride = in.mostly(a.rows % 1000 * wide);
  a.out_head_stride = in.mostly(a.v_head_dim + 2 * in.below(2));
  a.out_row_stride = in.mostly(wide);
  a.lse_head_stride = in.mostly(1);
  a.lse_row_stride = in.mostly(a.heads);
  a.lse_state_stride = in.mostly(a.rows % 1000 * a.heads);
  a.out_lse_head_stride = in.mostly(1);
  a.out_lse_row_stride = in.mostly(a.heads);
  const Index bytes = bytes_of(a.dtype, a.dtype);
  a.o = arena.tensor(
      in, {{a.states, a.o_state_stride}, {a.rows, a.o_row_stride}, {a.heads, a.o_head_stride}},
      a.v_head_dim, bytes);
  a.lse = static_cast<float*>(arena.tensor(
      in,
      {{a.states, a.lse_state_stride}, {a.rows, a.lse_row_stride}, {a.heads, a.lse_head_stride}}, 1,
      4));
  a.out = arena.tensor(in, {{a.rows, a.out_row_stride}, {a.heads, a.out_head_stride}}, a.v_head_dim,
                       bytes_of(a.out_dtype, a.dtype));
  if (in.flag())
    a.out_lse = static_cast<float*>(
        arena.tensor(in, {{a.rows, a.out_lse_row_stride}, {a.heads, a.out_lse_head_stride}}, 1, 4));
  if (in.flag()) a.sinks = arena.floats(in, a.heads);
  run_within(arena, [&] { return tw_merge_states(&a); });
}

inline void run_gate(Bytes& in) {
  Arena arena;
  auto a = sized_struct<tw_output_gate_args>(in);
  a.dtype = any_type(in);
  a.rows = in.mostly(in.below(6));
  a.heads = in.mostly32(in.below(4));
  a.head_dim = in.mostly32(1 + in.below(40));
  a.o_head_stride = in.mostly(a.head_dim + 2 * in.below(2));
  a.o_row_stride = in.mostly(a.heads % 1000 * (Index{a.head_dim} + 2));
  a.gate_head_stride = in.mostly(a.head_dim);
  a.gate_row_stride = in.mostly(a.heads % 1000 * Index{a.head_dim});
  const Index bytes = bytes_of(a.dtype, a.dtype);
  a.o = arena.tensor(in, {{a.rows, a.o_row_stride}, {a.heads, a.o_head_stride}}, a.head_dim, bytes);
  a.gate = arena.tensor(in, {{a.rows, a.gate_row_stride}, {a.heads, a.gate_head_stride}},
                        a.head_dim, bytes);
  run_within(arena, [&] { return tw_output_gate(&a); });
}

inline void run_elementwise(Bytes& in) {
  Arena arena;
  auto a = sized_struct<tw_elementwise_args>(in);
  a.dtype = any_type(in);
  a.n = in.mostly(in.below(200));
  a.value = in.rarely() ? static_cast<float>(in.hostile()) : 2.5f;
  a.x = arena.sized(in, a.n, bytes_of(a.dtype, a.dtype));
  const bool cap = in.flag();
  run_within(arena, [&] { return cap ? tw_softcap(&a) : tw_scale(&a); });
}

}  // namespace tilewise::fuzz
