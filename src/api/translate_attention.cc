// tw_attention_args -> core::Attention.
#include <cmath>

#include "api/translate.h"
#include "api/versioned.h"

namespace tilewise::api {
namespace {

using core::Code;
using core::invalid_argument;

static_assert(static_cast<int>(core::RowClass::kDecode) == TW_CLASS_D);
static_assert(static_cast<int>(core::RowClass::kPrefill) == TW_CLASS_P);
static_assert(static_cast<int>(core::FaultCode::kDisagrees) == TW_FAULT_DISAGREES);
static_assert(static_cast<int>(core::FaultWhat::kMask) == TW_WHAT_MASK);
static_assert(static_cast<int>(core::DType::kFp32) == TW_DTYPE_FP32);

constexpr std::uint32_t kKnownFlags = TW_CAUSAL | TW_WINDOW_LEFT | TW_WINDOW_RIGHT | TW_PDL;

Status read_types(const tw_attention_args& in, core::Attention* out) {
  TW_TRY(read_dtype("q_dtype", in.q_dtype, nullptr, &out->q_dtype));
  TW_TRY(read_dtype("kv_dtype", in.kv_dtype, &out->q_dtype, &out->kv_dtype));
  TW_TRY(read_dtype("o_dtype", in.o_dtype, &out->q_dtype, &out->o_dtype));
  if (out->o_dtype != out->q_dtype && out->o_dtype != core::DType::kFp32) {
    return core::unsupported("o_dtype", in.o_dtype, "q_dtype or TW_DTYPE_FP32");
  }
  TW_TRY(check_reserved("k_scale", in.k_scale == nullptr));
  TW_TRY(check_reserved("v_scale", in.v_scale == nullptr));
  TW_TRY(check_reserved("bias", in.bias == nullptr));
  return check_reserved("kv_shared", in.kv_shared == 0);
}

Status read_shape(const tw_attention_args& in, core::TokenRows* tokens, core::Attention* out) {
  TW_TRY(check_range("q_heads", in.q_heads, 1, INT32_MAX, "1 or more"));
  TW_TRY(check_range("kv_heads", in.kv_heads, 1, INT32_MAX, "1 or more"));
  if (in.q_heads % in.kv_heads != 0) {
    return Status::error(Code::kInvalidArgument,
                         "q_heads is %d, wanted a multiple of kv_heads = %d", in.q_heads,
                         in.kv_heads);
  }
  TW_TRY(check_head_dim("head_dim", in.head_dim));
  const std::int32_t v_head_dim = in.v_head_dim != 0 ? in.v_head_dim : in.head_dim;
  TW_TRY(check_head_dim("v_head_dim", v_head_dim));
  TW_TRY(read_rows({in.batch, in.q_len, in.max_q_len, in.total_q, in.q_indptr}, tokens));
  out->batch = in.batch;
  out->q_heads = in.q_heads;
  out->kv_heads = in.kv_heads;
  out->head_dim = in.head_dim;
  out->v_head_dim = v_head_dim;
  out->q_len = tokens->q_len;
  out->max_q_len = tokens->max_q_len;
  out->total_q = tokens->total_q;
  out->q_indptr = tokens->q_indptr;
  std::int64_t rows;
  return checked_product("rows x q_heads", tokens->total_q, in.q_heads, &rows);
}

Status read_q_and_outputs(const tw_attention_args& in, bool need_pointers, core::Attention* out) {
  const bool ragged = in.q_indptr != nullptr;
  const std::int64_t rows = ragged ? out->total_q : out->q_len;
  out->q = in.q;
  out->q_stride = {in.q_batch_stride, in.q_token_stride, in.q_head_stride};
  out->o = in.o;
  out->o_stride = {in.o_batch_stride, in.o_token_stride, in.o_head_stride};
  out->lse = in.lse;
  out->lse_stride = {in.lse_batch_stride, in.lse_row_stride, in.lse_head_stride};
  const auto check = [&](const Tensor& t) { return check_tensor(t, need_pointers); };
  const auto dims = [&](const core::RowStrides& s, const char* token) {
    return Tensor{
        "",
        nullptr,
        0,
        0,
        {{"batch", out->batch, s.batch}, {token, rows, s.token}, {"head", out->q_heads, s.head}},
        4,
        false,
        ragged};
  };
  Tensor q = dims(out->q_stride, "token");
  q.name = "q", q.data = in.q, q.element_bytes = core::size_of(out->q_dtype), q.row = out->head_dim;
  TW_TRY(check(q));
  Tensor o = dims(out->o_stride, "token");
  o.name = "o", o.data = in.o, o.element_bytes = core::size_of(out->o_dtype),
  o.row = out->v_head_dim, o.written = true;
  TW_TRY(check(o));
  if (in.lse == nullptr) return {};
  Tensor lse = dims(out->lse_stride, "row");
  lse.name = "lse", lse.data = in.lse, lse.element_bytes = 4, lse.row = 1, lse.written = true;
  return check(lse);
}

Status read_mask(const tw_mask* mask, bool need_pointers, core::Attention* out) {
  tw_mask m;
  TW_TRY(read_struct("mask", mask, &m));
  TW_TRY(check_range("mask.width", m.width, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("mask.bytes", m.bytes, 0, kMostElements, "0 to 2^58"));
  if (need_pointers) TW_TRY(check_present("mask.data", m.data, "an array"));
  if (m.offset != nullptr && m.bytes == 0)
    return invalid_argument("mask.bytes", 0LL, "the extent of data with mask.offset");
  TW_TRY(check_aligned("mask.offset", m.offset, 8));
  TW_TRY(check_aligned("mask.first_key", m.first_key, 4));
  // Rows without bytes have no use for strides, and nothing bounds them.
  if (m.width == 0) m.batch_stride = m.head_stride = m.row_stride = 0;
  const std::int64_t batch_stride = m.offset != nullptr ? 0 : m.batch_stride;
  TW_TRY(check_tensor({"mask",
                       m.data,
                       1,
                       m.width,
                       {{"batch", out->batch, batch_stride},
                        {"head", out->q_heads, m.head_stride},
                        {"row", out->max_q_len, m.row_stride}},
                       1,
                       false,
                       false},
                      need_pointers));
  static const std::uint8_t nothing = 0;
  out->mask = {m.data != nullptr ? m.data : &nothing,
               m.batch_stride,
               m.head_stride,
               m.row_stride,
               m.offset,
               m.first_key,
               m.width,
               m.bytes};
  return {};
}

Status read_semantics(const tw_attention_args& in, bool need_pointers, core::Attention* out) {
  if ((in.flags & ~kKnownFlags) != 0)
    return core::unsupported("flags", in.flags, "TW_CAUSAL, _WINDOW_LEFT, _WINDOW_RIGHT, _PDL");
  if (!std::isfinite(in.scale))
    return invalid_argument("scale", static_cast<double>(in.scale), "a finite number");
  if (!std::isfinite(in.softcap) || in.softcap < 0) {
    return invalid_argument("softcap", static_cast<double>(in.softcap),
                            "0 or a finite positive number");
  }
  out->scale = in.scale != 0
                   ? in.scale
                   : static_cast<float>(1.0 / std::sqrt(static_cast<double>(in.head_dim)));
  out->softcap = in.softcap;
  out->rule.causal = (in.flags & TW_CAUSAL) != 0;
  out->rule.has_left = (in.flags & TW_WINDOW_LEFT) != 0;
  out->rule.has_right = (in.flags & TW_WINDOW_RIGHT) != 0;
  if (out->rule.has_left)
    TW_TRY(
        check_range("window_left", in.window_left, 0, INT32_MAX, "0 or more with TW_WINDOW_LEFT"));
  if (out->rule.has_right)
    TW_TRY(check_range("window_right", in.window_right, 0, INT32_MAX,
                       "0 or more with TW_WINDOW_RIGHT"));
  out->rule.window_left = in.window_left;
  out->rule.window_right = in.window_right;
  const Dim none{"", 1, 0};
  if (in.alibi_slopes != nullptr) {
    TW_TRY(check_tensor({"alibi",
                         in.alibi_slopes,
                         4,
                         in.q_heads,
                         {{"batch", in.batch, in.alibi_batch_stride}, none, none},
                         4,
                         false,
                         false}));
  }
  TW_TRY(check_aligned("sinks", in.sinks, 4));
  TW_TRY(check_aligned("q_start", in.q_start, 4));
  TW_TRY(check_aligned("q_positions", in.q_positions, 4));
  TW_TRY(check_range("row_class", in.row_class, TW_CLASS_AUTO, TW_CLASS_P, "a TW_CLASS_ value"));
  out->alibi = in.alibi_slopes;
  out->alibi_batch_stride = in.alibi_batch_stride;
  out->sinks = in.sinks;
  out->q_start = in.q_start;
  out->q_positions = in.q_positions;
  out->forced_class = static_cast<core::RowClass>(in.row_class);
  return in.mask != nullptr ? read_mask(in.mask, need_pointers, out) : Status{};
}

}  // namespace

Status translate_attention(const tw_attention_args& in, bool need_pointers, core::Attention* out) {
  *out = core::Attention{};
  TW_TRY(read_types(in, out));
  core::TokenRows tokens;
  TW_TRY(read_shape(in, &tokens, out));
  TW_TRY(read_q_and_outputs(in, need_pointers, out));
  const CacheShape shape{in.batch,      in.kv_heads,   in.head_dim,          out->v_head_dim,
                         out->kv_dtype, in.max_kv_len, in.append != nullptr, false,
                         need_pointers};
  TW_TRY(read_cache(in.kv, shape, &out->kv));
  if (in.append != nullptr) TW_TRY(read_new_kv(in.append, shape, tokens, &out->append));
  TW_TRY(check_aligned("status", in.status, alignof(tw_status_record)));
  return read_semantics(in, need_pointers, out);
}

}  // namespace tilewise::api
