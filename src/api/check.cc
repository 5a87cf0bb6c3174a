// Scalar, pointer and tensor checks.
#include "api/check.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "api/versioned.h"

namespace tilewise::api {
namespace {

using core::Code;
using core::invalid_argument;

Status bad_stride(const Tensor& t, const Dim& dim, const char* wanted) {
  char name[64];
  std::snprintf(name, sizeof name, "%s_%s_stride", t.name, dim.name);
  return invalid_argument(name, static_cast<long long>(dim.stride), wanted);
}

Status add_extent(const Tensor& t, const Dim& dim, std::int64_t* span) {
  const std::int64_t step = dim.stride < 0 ? -dim.stride : dim.stride;
  std::int64_t reach;
  if (__builtin_mul_overflow(dim.count - 1, step, &reach) || reach > kMostElements - *span) {
    return bad_stride(t, dim, "an extent below 2^58 elements in all");
  }
  *span += reach;
  return {};
}

// Rows are apart if, from the smallest stride up, each stride is at least the extent of all that
// lies inside it.
Status check_rows_apart(const Tensor& t) {
  Dim dims[3];
  int n = 0;
  std::int64_t shift =
      0;  // ragged: requests may be moved apart, which only widens the token dimension
  for (const Dim& dim : t.dims) {
    if (t.ragged && &dim == &t.dims[0]) {
      shift = std::max<std::int64_t>(dim.count - 1, 0) * dim.stride;
    } else if (dim.count > 1) {
      int at = n++;
      for (; at > 0 && dims[at - 1].stride > dim.stride; --at) dims[at] = dims[at - 1];
      dims[at] = dim;
    }
  }
  std::int64_t inside = t.row;
  for (int i = 0; i < n; ++i) {
    if (dims[i].stride < inside)
      return bad_stride(t, dims[i], "rows of an output apart from each other");
    inside += (dims[i].count - 1) * dims[i].stride;
    if (t.ragged && dims[i].name == t.dims[1].name) inside += shift;
  }
  return {};
}

}  // namespace

Status check_tensor(const Tensor& t, bool need_pointer) {
  // Also where one row or none makes a stride idle: it still enters products with zero.
  for (const Dim& dim : t.dims) {
    if (dim.stride > kMostElements || dim.stride < -kMostElements)
      return bad_stride(t, dim, "less than 2^58 elements");
  }
  for (const Dim& dim : t.dims) {
    if (dim.count <= 0) return {};
  }
  if (t.row <= 0) return {};
  if (t.data == nullptr && need_pointer) return invalid_argument(t.name, t.data, "a pointer");
  std::int64_t span = t.row;
  for (const Dim& dim : t.dims) {
    if (dim.count > 1) TW_TRY(add_extent(t, dim, &span));
    if (dim.count > 1 && dim.stride < 0 && t.written)
      return bad_stride(t, dim, "0 or more for an output");
    if (dim.count > 1 && dim.stride * t.element_bytes % t.align_bytes != 0) {
      char wanted[48];
      std::snprintf(wanted, sizeof wanted, "a multiple of %d bytes", t.align_bytes);
      return bad_stride(t, dim, wanted);
    }
  }
  TW_TRY(check_aligned(t.name, t.data, static_cast<std::size_t>(t.align_bytes)));
  return t.written ? check_rows_apart(t) : Status{};
}

Status checked_product(const char* name, std::int64_t a, std::int64_t b, std::int64_t* product) {
  if (__builtin_mul_overflow(a, b, product) || *product > kMostElements) {
    return Status::error(Code::kInvalidArgument,
                         "%s: %" PRId64 " x %" PRId64 " elements, wanted less than 2^58", name, a,
                         b);
  }
  return {};
}

Status check_range(const char* name, long long value, long long low, long long high,
                   const char* wanted) {
  return value < low || value > high ? invalid_argument(name, value, wanted) : Status{};
}

Status check_aligned(const char* name, const void* data, std::size_t bytes) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(data);
  if (address % bytes == 0) return {};
  return Status::error(Code::kInvalidArgument,
                       "%s is %zu bytes past an aligned address, wanted %zu-byte alignment", name,
                       static_cast<std::size_t>(address % bytes), bytes);
}

Status check_present(const char* name, const void* data, const char* wanted) {
  return data == nullptr ? invalid_argument(name, data, wanted) : Status{};
}

Status check_head_dim(const char* name, std::int32_t value) {
  if (value <= 0 || value % 8 != 0) {
    return invalid_argument(name, static_cast<long long>(value), "a multiple of 8 from 8 to 512");
  }
  return value > 512 ? core::unsupported(name, value, "multiples of 8 up to 512") : Status{};
}

Status check_reserved(const char* name, bool is_zero) {
  if (is_zero) return {};
  return Status::error(Code::kUnsupported, "%s is set, this version reserves it: wanted zero",
                       name);
}

Status read_dtype(const char* name, tw_dtype value, const core::DType* fallback, core::DType* out) {
  if (value == TW_DTYPE_DEFAULT && fallback != nullptr) {
    *out = *fallback;
    return {};
  }
  if (value < TW_DTYPE_BF16 || value > TW_DTYPE_FP32) {
    return invalid_argument(name, static_cast<long long>(value), "TW_DTYPE_BF16, _FP16 or _FP32");
  }
  *out = static_cast<core::DType>(value);
  return {};
}

Status read_target(const tw_target* target, Target* out) {
  tw_target t{};
  *out = Target{};
  if (target != nullptr) TW_TRY(read_struct("target", target, &t));
  if (t.device_kind == TW_DEVICE_CUDA) {
    if (!cuda::built()) return cuda::check_device(t.device_index);
    TW_TRY(check_range("target.device_index", t.device_index, 0, INT32_MAX, "0 or more"));
    out->on_cuda = true;
    out->queue = {t.device_index, t.stream};
    return {};
  }
  if (t.device_kind != TW_DEVICE_CPU) {
    return invalid_argument("target.device_kind", static_cast<long long>(t.device_kind),
                            "TW_DEVICE_CPU or _CUDA");
  }
  TW_TRY(check_range("target.threads", t.threads, 0, 4096, "0 to 4096"));
  TW_TRY(check_range("target.device_index", t.device_index, 0, 0, "0 on the CPU"));
  out->parallel = cpu::make_parallel(t.parallel_for, t.parallel_user, t.threads);
  return {};
}

Status read_rows(const RowArguments& in, core::TokenRows* out) {
  TW_TRY(check_range("batch", in.batch, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("q_len", in.q_len, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("max_q_len", in.max_q_len, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("total_q", in.total_q, 0, INT32_MAX, "0 to 2^31 - 1"));
  *out = {in.batch, in.q_len, in.total_q, in.max_q_len, in.q_indptr};
  if (in.q_indptr != nullptr) {
    TW_TRY(check_aligned("q_indptr", in.q_indptr, sizeof(std::int32_t)));
    if (in.q_len != 0)
      return invalid_argument("q_len", static_cast<long long>(in.q_len), "0 with q_indptr");
    if (in.max_q_len == 0 || in.max_q_len > in.total_q) out->max_q_len = in.total_q;
    return {};
  }
  std::int64_t rows;
  TW_TRY(checked_product("batch x q_len", in.batch, in.q_len, &rows));
  if (rows > INT32_MAX)
    return invalid_argument("batch x q_len", static_cast<long long>(rows), "at most 2^31 - 1 rows");
  if (in.total_q != 0 && in.total_q != rows) {
    return invalid_argument("total_q", static_cast<long long>(in.total_q),
                            "0 or batch x q_len without q_indptr");
  }
  if (in.max_q_len != 0 && in.max_q_len < in.q_len) {
    return invalid_argument("max_q_len", static_cast<long long>(in.max_q_len),
                            "0 or at least q_len");
  }
  out->total_q = rows;
  out->max_q_len = in.q_len;
  return {};
}

// The cosines or the sines of a rotary table, whose elements need not be contiguous.
static Tensor table_half(const char* name, const void* data, int bytes, const Dim& row,
                         const Dim& element) {
  return {name, data, bytes, 1, {row, element, {"", 1, 0}}, bytes, false, false};
}

Status read_rope_table(const tw_rope_table* table, std::int32_t head_dim, core::RopeTable* out) {
  tw_rope_table t;
  TW_TRY(read_struct("rope", table, &t));
  const core::DType fp32 = core::DType::kFp32;
  core::DType dtype = fp32;
  TW_TRY(read_dtype("rope.dtype", t.dtype, &fp32, &dtype));
  if (dtype == core::DType::kFp16)
    return core::unsupported("rope.dtype", t.dtype, "TW_DTYPE_BF16 and _FP32");
  if (t.rotary_dim < 0 || t.rotary_dim > head_dim || t.rotary_dim % 2 != 0) {
    return invalid_argument("rope.rotary_dim", static_cast<long long>(t.rotary_dim),
                            "even, 0 to head_dim");
  }
  TW_TRY(check_range("rope.pairs", t.pairs, TW_PAIRS_HALVES, TW_PAIRS_INTERLEAVED,
                     "a TW_PAIRS_ value"));
  TW_TRY(check_range("rope.rows", t.rows, 0, kMostElements, "0 to 2^58"));
  const std::int64_t half = t.rotary_dim / 2;
  const std::int64_t cos_step = t.cos_element_stride != 0 ? t.cos_element_stride : 1;
  const std::int64_t sin_step = t.sin_element_stride != 0 ? t.sin_element_stride : 1;
  const int bytes = core::size_of(dtype);
  TW_TRY(check_tensor(table_half("rope.cos", t.cos, bytes, {"row", t.rows, t.cos_row_stride},
                                 {"element", half, cos_step})));
  TW_TRY(check_tensor(table_half("rope.sin", t.sin, bytes, {"row", t.rows, t.sin_row_stride},
                                 {"element", half, sin_step})));
  *out = {t.cos,        t.sin,
          dtype,        t.cos_row_stride,
          cos_step,     t.sin_row_stride,
          sin_step,     t.rows,
          t.rotary_dim, static_cast<core::PairStyle>(t.pairs)};
  return {};
}

}  // namespace tilewise::api
