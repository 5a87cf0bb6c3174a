// A K/V cache and rows to append for the fuzzer: any layout, hostile tables and lengths, extents as
// the arguments say.
#pragma once

#include "tests/fuzz/abi_arena.h"

namespace tilewise::fuzz {

struct CacheShape {
  Index batch, kv_heads, head_dim, v_head_dim;
  tw_dtype dtype;
  Index max_kv_len;
  bool by_slot;
};

inline void draw_table(Bytes& in, Arena& arena, Index batch, tw_kv_cache* kv) {
  kv->num_pages = in.mostly(1 + in.below(6));
  const Index pages = kv->num_pages > 0 ? kv->num_pages : 1;
  if (in.flag()) kv->first_page = arena.integers(in, batch, 3);
  if (in.flag()) {
    kv->page_indices_len = in.mostly(in.below(12));
    kv->page_table = arena.integers(in, kv->page_indices_len, pages);
    kv->page_indptr = arena.ascending(in, batch + 1, 4, kv->page_indices_len);
    return;
  }
  kv->page_table_width = in.mostly32(in.below(6));
  kv->page_table_rows = in.mostly(in.flag() ? batch : 1 + in.below(4));
  kv->page_row_stride = in.flag() ? 0 : in.mostly(kv->page_table_width + in.below(3));
  const Index stride = kv->page_row_stride != 0 ? kv->page_row_stride : kv->page_table_width;
  auto* table = static_cast<std::int32_t*>(
      arena.tensor(in, {{kv->page_table_rows, stride}}, kv->page_table_width, 4));
  // Rows without entries may be as many as they like.
  const Index rows = kv->page_table_width > 0 ? kv->page_table_rows : 0;
  for (Index n = 0; !arena.too_large && stride >= 0 && n < rows; ++n) {
    for (Index entry = 0; entry < kv->page_table_width; ++entry)
      table[n * stride + entry] = in.mostly32(in.below(pages));
  }
  kv->page_table = table;
  if (in.flag())
    kv->page_rows = arena.integers(
        in, batch, kv->page_table_rows > 0 && kv->page_table_rows < 100 ? kv->page_table_rows : 1);
}

inline void draw_lengths(Bytes& in, Arena& arena, const CacheShape& s, tw_kv_cache* kv) {
  const Index usual = s.max_kv_len < 100 ? s.max_kv_len + 1 : 100;
  switch (in.below(kv->page_indptr != nullptr ? 4 : 3)) {
    case 0:
      kv->kv_lens = arena.integers(in, s.batch, usual);
      break;
    case 1:
      kv->kv_len = in.mostly32(in.below(usual > 0 ? usual : 1));
      break;
    case 2:
      kv->kv_indptr =
          arena.ascending(in, s.batch + 1, 20, kv->page_size > 0 ? 1000 : kv->kv_capacity);
      break;
    default:
      kv->last_page_len = arena.integers(
          in, s.batch, kv->page_size > 0 && kv->page_size < 100 ? kv->page_size + 1 : 1);
  }
}

// Rows 16 bytes apart in every type; now and then not.
inline Index padded(Bytes& in, Index elements) {
  constexpr Index most = Index{1} << 40;
  if (elements < 0 || elements > most) elements = most;
  return in.mostly((elements + 8 * in.below(2) + 7) / 8 * 8);
}

inline tw_kv_cache draw_cache(Bytes& in, Arena& arena, const CacheShape& s) {
  auto kv = sized_struct<tw_kv_cache>(in);
  kv.page_size = in.flag() ? in.mostly32(1 + in.below(9)) : 0;
  const bool paged = kv.page_size > 0;
  kv.kv_capacity = in.mostly(in.below(70));
  const bool before = arena.impossible;
  if (paged) draw_table(in, arena, s.batch, &kv);
  if (s.by_slot) arena.impossible = before;  // slots replace the table: nobody looks at it
  draw_lengths(in, arena, s, &kv);
  const bool packed = !paged && (kv.kv_indptr != nullptr || s.by_slot);
  Index rows = paged ? kv.page_size : kv.kv_capacity;
  if (!paged && !packed && rows == 0) rows = s.max_kv_len > kv.kv_len ? s.max_kv_len : kv.kv_len;
  const Index blocks = paged ? kv.num_pages : packed ? 1 : s.batch;
  const auto pool = [&](Index dim, Index* batch, Index* token, Index* head) {
    const bool head_major = in.flag();
    *head = padded(in, head_major ? times(rows, dim) : dim);
    *token = padded(in, head_major ? dim : s.kv_heads * dim);
    *batch = padded(in, times(times(rows, s.kv_heads), dim + 8));
    return arena.tensor(in, {{blocks, *batch}, {rows, *token}, {s.kv_heads, *head}}, dim,
                        bytes_of(s.dtype, s.dtype));
  };
  kv.k = pool(s.head_dim, &kv.k_batch_stride, &kv.k_token_stride, &kv.k_head_stride);
  kv.v = pool(s.v_head_dim, &kv.v_batch_stride, &kv.v_token_stride, &kv.v_head_stride);
  return kv;
}

struct RowCount {
  Index batch, q_len, total_q;  // total_q: rows in all of a ragged call
  bool ragged;
};

inline tw_new_kv draw_rows(Bytes& in, Arena& arena, const CacheShape& s, const RowCount& rows) {
  auto n = sized_struct<tw_new_kv>(in);
  n.dtype = in.flag() ? any_type(in) : TW_DTYPE_DEFAULT;
  const auto tensor = [&](Index dim, Index* batch, Index* token, Index* head) {
    *head = padded(in, dim);
    *token = padded(in, s.kv_heads < 1000 ? s.kv_heads * dim : dim);
    *batch =
        rows.ragged ? 0 : padded(in, rows.q_len < 1000 ? times(rows.q_len, *token) % 100000 : dim);
    return arena.tensor(in,
                        {{rows.batch, *batch},
                         {rows.ragged ? rows.total_q : rows.q_len, *token},
                         {s.kv_heads, *head}},
                        dim, bytes_of(n.dtype, s.dtype));
  };
  n.k = tensor(s.head_dim, &n.k_batch_stride, &n.k_token_stride, &n.k_head_stride);
  n.v = tensor(s.v_head_dim, &n.v_batch_stride, &n.v_token_stride, &n.v_head_stride);
  return n;
}

}  // namespace tilewise::fuzz
