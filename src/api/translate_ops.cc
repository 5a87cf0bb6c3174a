// The small operations' argument structs -> core/ops.h.
#include <algorithm>
#include <cmath>

#include "api/translate.h"
#include "api/versioned.h"

namespace tilewise::api {
namespace {

using core::invalid_argument;

// Rows of heads, in or out, of a dense or ragged call.
struct Rows {
  const char* name;
  const void* data;
  core::RowStrides stride;
  std::int32_t heads, head_dim;
  core::DType dtype;
  bool written;
};

Status check_rows(const Rows& rows, const core::TokenRows& tokens) {
  const bool ragged = tokens.q_indptr != nullptr;
  const int bytes = core::size_of(rows.dtype);
  return check_tensor({rows.name,
                       rows.data,
                       bytes,
                       rows.head_dim,
                       {{"batch", tokens.batch, rows.stride.batch},
                        {"token", ragged ? tokens.total_q : tokens.q_len, rows.stride.token},
                        {"head", rows.heads, rows.stride.head}},
                       bytes,
                       rows.written,
                       ragged});
}

Status check_positions(const std::int32_t* positions, const std::int32_t* start) {
  TW_TRY(check_aligned("positions", positions, 4));
  TW_TRY(check_aligned("start", start, 4));
  if (positions != nullptr && start != nullptr) {
    return invalid_argument("start", static_cast<const void*>(start), "null with positions");
  }
  return {};
}

// Two-dimensional arrays of rows x heads.
Status check_matrix(const char* name, const void* data, core::DType dtype, std::int64_t rows,
                    std::int64_t row_stride, std::int32_t heads, std::int64_t head_stride,
                    std::int64_t inner, bool written) {
  const int bytes = core::size_of(dtype);
  return check_tensor({name,
                       data,
                       bytes,
                       inner,
                       {{"row", rows, row_stride}, {"head", heads, head_stride}, {"", 1, 0}},
                       bytes,
                       written,
                       false});
}

Status read_prep_types(const tw_qk_prep_args& in, core::QkPrep* out) {
  TW_TRY(read_dtype("dtype", in.dtype, nullptr, &out->dtype));
  TW_TRY(read_dtype("kv_dtype", in.kv_dtype, &out->dtype, &out->kv_dtype));
  TW_TRY(read_dtype("weight_dtype", in.weight_dtype, &out->dtype, &out->weight_dtype));
  TW_TRY(check_range("norm", in.norm, TW_NORM_NONE, TW_NORM_ONE_PLUS_WEIGHT, "a TW_NORM_ value"));
  TW_TRY(
      check_range("rounding", in.rounding, TW_ROUND_ONCE, TW_ROUND_TWO_STEP, "a TW_ROUND_ value"));
  TW_TRY(check_range("v_mode", in.v_mode, TW_V_COPY, TW_V_FROM_RAW_K, "a TW_V_ value"));
  TW_TRY(check_range("q_heads", in.q_heads, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("kv_heads", in.kv_heads, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_head_dim("head_dim", in.head_dim));
  TW_TRY(check_reserved("reserved0", in.reserved0 == 0));
  TW_TRY(check_reserved("reserved1", in.reserved1 == 0));
  if (!std::isfinite(in.eps) || in.eps < 0)
    return invalid_argument("eps", static_cast<double>(in.eps), "0 or a finite positive number");
  out->q_heads = in.q_heads;
  out->kv_heads = in.kv_heads;
  out->head_dim = in.head_dim;
  out->norm = static_cast<core::Norm>(in.norm);
  out->rounding = static_cast<core::NormRounding>(in.rounding);
  out->v_mode = static_cast<core::VMode>(in.v_mode);
  out->eps = in.eps;
  return {};
}

// Which inputs must be there for which outputs.
Status check_prep_roles(const tw_qk_prep_args& in) {
  const bool rows = in.total_q > 0 || (in.q_indptr == nullptr && in.batch > 0 && in.q_len > 0);
  const bool weighted = in.norm != TW_NORM_NONE;
  const bool writes_k = in.k_out != nullptr || in.kv != nullptr;
  const bool writes_v = in.v_out != nullptr || in.kv != nullptr;
  if (in.v_mode == TW_V_FROM_RAW_K && in.v != nullptr) {
    return invalid_argument("v", in.v, "null with TW_V_FROM_RAW_K");
  }
  if (!rows) return {};
  if (in.q_heads > 0 && in.q_out != nullptr) TW_TRY(check_present("q", in.q, "rows for q_out"));
  if (in.q_heads > 0 && in.q != nullptr)
    TW_TRY(check_present("q_out", in.q_out, "a place for q (in place: q itself)"));
  if (in.kv_heads > 0 && writes_k) TW_TRY(check_present("k", in.k, "rows for k_out or the cache"));
  if (in.kv_heads > 0 && in.k != nullptr && !writes_k && in.v_out == nullptr) {
    return invalid_argument("k_out", static_cast<const void*>(nullptr),
                            "a place for k (k_out or kv)");
  }
  if (in.kv_heads > 0 && writes_v && in.v_mode != TW_V_FROM_RAW_K)
    TW_TRY(check_present("v", in.v, "rows for v_out or the cache"));
  if (in.kv_heads > 0 && in.v_out != nullptr && in.v_mode == TW_V_FROM_RAW_K)
    TW_TRY(check_present("k", in.k, "rows for v_out"));
  if (weighted && in.q_heads > 0 && in.q != nullptr)
    TW_TRY(check_present("q_weight", in.q_weight, "the norm's weights"));
  if (weighted && in.kv_heads > 0 && writes_k)
    TW_TRY(check_present("k_weight", in.k_weight, "the norm's weights"));
  return {};
}

Status read_prep_rows(const tw_qk_prep_args& in, core::QkPrep* out) {
  out->q = {in.q, {in.q_batch_stride, in.q_token_stride, in.q_head_stride}};
  out->k = {in.k, {in.k_batch_stride, in.k_token_stride, in.k_head_stride}};
  out->v = {in.v, {in.v_batch_stride, in.v_token_stride, in.v_head_stride}};
  out->q_out = {in.q_out, {in.q_out_batch_stride, in.q_out_token_stride, in.q_out_head_stride}};
  out->k_out = {in.k_out, {in.k_out_batch_stride, in.k_out_token_stride, in.k_out_head_stride}};
  out->v_out = {in.v_out, {in.v_out_batch_stride, in.v_out_token_stride, in.v_out_head_stride}};
  const Rows all[] = {
      {"q", in.q, out->q.stride, in.q_heads, in.head_dim, out->dtype, false},
      {"k", in.k, out->k.stride, in.kv_heads, in.head_dim, out->dtype, false},
      {"v", in.v, out->v.stride, in.kv_heads, in.head_dim, out->dtype, false},
      {"q_out", in.q_out, out->q_out.stride, in.q_heads, in.head_dim, out->dtype, true},
      {"k_out", in.k_out, out->k_out.stride, in.kv_heads, in.head_dim, out->dtype, true},
      {"v_out", in.v_out, out->v_out.stride, in.kv_heads, in.head_dim, out->dtype, true}};
  for (const Rows& rows : all) {
    if (rows.data != nullptr) TW_TRY(check_rows(rows, out->tokens));
  }
  const std::size_t weight_bytes = static_cast<std::size_t>(core::size_of(out->weight_dtype));
  TW_TRY(check_aligned("q_weight", in.q_weight, weight_bytes));
  TW_TRY(check_aligned("k_weight", in.k_weight, weight_bytes));
  out->q_weight = in.q_weight;
  out->k_weight = in.k_weight;
  return {};
}

}  // namespace

Status translate_qk_prep(const tw_qk_prep_args& in, core::QkPrep* out) {
  *out = core::QkPrep{};
  TW_TRY(read_prep_types(in, out));
  TW_TRY(read_rows({in.batch, in.q_len, 0, in.total_q, in.q_indptr}, &out->tokens));
  TW_TRY(check_prep_roles(in));
  TW_TRY(read_prep_rows(in, out));
  TW_TRY(check_positions(in.positions, in.start));
  TW_TRY(check_aligned("slot_mapping", in.slot_mapping, 4));
  TW_TRY(check_aligned("status", in.status, alignof(tw_status_record)));
  out->positions = in.positions;
  out->start = in.start;
  out->slot_mapping = in.slot_mapping;
  if (in.rope != nullptr) TW_TRY(read_rope_table(in.rope, in.head_dim, &out->rope));
  if (in.kv == nullptr) {
    if (in.slot_mapping != nullptr)
      return invalid_argument("kv", static_cast<const void*>(nullptr), "a cache with slot_mapping");
    return {};
  }
  out->has_cache = true;
  const CacheShape shape{in.batch,      in.kv_heads,   in.head_dim, in.head_dim,
                         out->kv_dtype, in.max_kv_len, true,        in.slot_mapping != nullptr,
                         true};
  return read_cache(in.kv, shape, &out->kv);
}

Status translate_rope(const tw_rope_args& in, core::Rope* out) {
  *out = core::Rope{};
  TW_TRY(read_dtype("dtype", in.dtype, nullptr, &out->dtype));
  TW_TRY(read_rows({in.batch, in.q_len, 0, in.total_q, in.q_indptr}, &out->tokens));
  TW_TRY(check_range("heads", in.heads, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_head_dim("head_dim", in.head_dim));
  out->heads = in.heads;
  out->head_dim = in.head_dim;
  out->x = {in.x, {in.x_batch_stride, in.x_token_stride, in.x_head_stride}};
  out->out = {in.out, {in.out_batch_stride, in.out_token_stride, in.out_head_stride}};
  if (in.out == nullptr) out->out = {const_cast<void*>(in.x), out->x.stride};
  TW_TRY(
      check_rows({"x", in.x, out->x.stride, in.heads, in.head_dim, out->dtype, in.out == nullptr},
                 out->tokens));
  TW_TRY(
      check_rows({"out", out->out.data, out->out.stride, in.heads, in.head_dim, out->dtype, true},
                 out->tokens));
  TW_TRY(read_rope_table(in.rope, in.head_dim, &out->rope));
  TW_TRY(check_positions(in.positions, in.start));
  out->positions = in.positions;
  out->start = in.start;
  return check_aligned("status", in.status, alignof(tw_status_record));
}

Status translate_kv_append(const tw_kv_append_args& in, core::KvAppend* out) {
  *out = core::KvAppend{};
  TW_TRY(read_dtype("kv_dtype", in.kv_dtype, nullptr, &out->kv_dtype));
  TW_TRY(check_range("kv_heads", in.kv_heads, 1, INT32_MAX, "1 or more"));
  TW_TRY(check_head_dim("head_dim", in.head_dim));
  const std::int32_t v_head_dim = in.v_head_dim != 0 ? in.v_head_dim : in.head_dim;
  TW_TRY(check_head_dim("v_head_dim", v_head_dim));
  out->kv_heads = in.kv_heads;
  out->head_dim = in.head_dim;
  out->v_head_dim = v_head_dim;
  const bool by_slot = in.slot_mapping != nullptr;
  const bool by_pair = in.batch_indices != nullptr || in.positions != nullptr;
  if (by_pair) {
    TW_TRY(check_present("batch_indices", in.batch_indices, "an array with positions"));
    TW_TRY(check_present("positions", in.positions, "an array with batch_indices"));
  }
  if (by_slot && by_pair)
    return invalid_argument("slot_mapping", static_cast<const void*>(in.slot_mapping),
                            "null with positions");
  TW_TRY(check_aligned("batch_indices", in.batch_indices, 4));
  TW_TRY(check_aligned("positions", in.positions, 4));
  TW_TRY(check_aligned("slot_mapping", in.slot_mapping, 4));
  CacheShape shape{in.batch,      in.kv_heads, in.head_dim, v_head_dim, out->kv_dtype,
                   in.max_kv_len, true,        by_slot,     true};
  if (by_slot || by_pair) {
    // total_q rows of no request in particular: dense rows of one.
    if (in.q_indptr != nullptr)
      return invalid_argument("q_indptr", static_cast<const void*>(in.q_indptr),
                              "null with a row mapping");
    if (in.q_len != 0)
      return invalid_argument("q_len", static_cast<long long>(in.q_len),
                              "0 with a row mapping (total_q counts the rows)");
    TW_TRY(check_range("batch", in.batch, 0, INT32_MAX, "0 or more"));
    TW_TRY(read_rows({1, in.total_q, 0, in.total_q, nullptr}, &out->tokens));
  } else {
    TW_TRY(read_rows({in.batch, in.q_len, 0, in.total_q, in.q_indptr}, &out->tokens));
  }
  TW_TRY(read_cache(in.kv, shape, &out->kv));
  TW_TRY(read_new_kv(in.rows, shape, out->tokens, &out->rows));
  if (by_pair) out->tokens.batch = in.batch;
  out->batch_indices = in.batch_indices;
  out->positions = in.positions;
  out->slot_mapping = in.slot_mapping;
  return check_aligned("status", in.status, alignof(tw_status_record));
}

Status translate_merge_states(const tw_merge_states_args& in, core::MergeStates* out) {
  *out = core::MergeStates{};
  TW_TRY(read_dtype("dtype", in.dtype, nullptr, &out->dtype));
  TW_TRY(read_dtype("out_dtype", in.out_dtype, &out->dtype, &out->out_dtype));
  TW_TRY(check_range("states", in.states, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("heads", in.heads, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("v_head_dim", in.v_head_dim, 1, INT32_MAX, "1 or more"));
  TW_TRY(check_range("rows", in.rows, 0, kMostElements, "0 to 2^58"));
  std::int64_t all;
  TW_TRY(checked_product("rows x heads", in.rows, in.heads, &all));
  const auto states = [&](const char* name, const void* data, core::DType dtype, std::int64_t state,
                          std::int64_t row, std::int64_t head, std::int64_t inner) {
    const int bytes = core::size_of(dtype);
    return check_tensor(
        {name,
         data,
         bytes,
         inner,
         {{"state", in.states, state}, {"row", in.rows, row}, {"head", in.heads, head}},
         bytes,
         false,
         false});
  };
  TW_TRY(states("o", in.o, out->dtype, in.o_state_stride, in.o_row_stride, in.o_head_stride,
                in.v_head_dim));
  TW_TRY(states("lse", in.lse, core::DType::kFp32, in.lse_state_stride, in.lse_row_stride,
                in.lse_head_stride, 1));
  TW_TRY(check_matrix("out", in.out, out->out_dtype, in.rows, in.out_row_stride, in.heads,
                      in.out_head_stride, in.v_head_dim, true));
  if (in.out_lse != nullptr) {
    TW_TRY(check_matrix("out_lse", in.out_lse, core::DType::kFp32, in.rows, in.out_lse_row_stride,
                        in.heads, in.out_lse_head_stride, 1, true));
  }
  TW_TRY(check_aligned("sinks", in.sinks, 4));
  *out = {out->dtype,
          out->out_dtype,
          in.states,
          in.heads,
          in.v_head_dim,
          in.rows,
          in.o,
          in.o_state_stride,
          in.o_row_stride,
          in.o_head_stride,
          in.lse,
          in.lse_state_stride,
          in.lse_row_stride,
          in.lse_head_stride,
          in.sinks,
          in.out,
          in.out_row_stride,
          in.out_head_stride,
          in.out_lse,
          in.out_lse_row_stride,
          in.out_lse_head_stride};
  return {};
}

Status translate_output_gate(const tw_output_gate_args& in, core::OutputGate* out) {
  *out = core::OutputGate{};
  TW_TRY(read_dtype("dtype", in.dtype, nullptr, &out->dtype));
  TW_TRY(check_range("rows", in.rows, 0, kMostElements, "0 to 2^58"));
  TW_TRY(check_range("heads", in.heads, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("head_dim", in.head_dim, 1, INT32_MAX, "1 or more"));
  std::int64_t all;
  TW_TRY(checked_product("rows x heads", in.rows, in.heads, &all));
  TW_TRY(check_matrix("o", in.o, out->dtype, in.rows, in.o_row_stride, in.heads, in.o_head_stride,
                      in.head_dim, true));
  TW_TRY(check_matrix("gate", in.gate, out->dtype, in.rows, in.gate_row_stride, in.heads,
                      in.gate_head_stride, in.head_dim, false));
  *out = {out->dtype,      in.rows,          in.heads, in.head_dim,        in.o,
          in.o_row_stride, in.o_head_stride, in.gate,  in.gate_row_stride, in.gate_head_stride};
  return {};
}

Status translate_elementwise(const tw_elementwise_args& in, core::ElementwiseOp op,
                             core::Elementwise* out) {
  core::DType dtype;
  TW_TRY(read_dtype("dtype", in.dtype, nullptr, &dtype));
  TW_TRY(check_range("n", in.n, 0, kMostElements, "0 to 2^58"));
  TW_TRY(check_reserved("reserved0", in.reserved0 == 0));
  if (!std::isfinite(in.value))
    return invalid_argument("value", static_cast<double>(in.value), "a finite number");
  if (op == core::ElementwiseOp::kSoftcap && in.value <= 0) {
    return invalid_argument("value", static_cast<double>(in.value), "a positive number");
  }
  const Dim none{"", 1, 0};
  TW_TRY(check_tensor({"x",
                       in.x,
                       core::size_of(dtype),
                       in.n,
                       {none, none, none},
                       core::size_of(dtype),
                       false,
                       false}));
  *out = {op, dtype, in.x, in.n, in.value};
  return {};
}

}  // namespace tilewise::api
