// Checks and translation of the cache description and of rows to append.
#include <algorithm>

#include "api/check.h"
#include "api/versioned.h"

namespace tilewise::api {
namespace {

using core::Code;
using core::invalid_argument;
using core::KvLayout;
using core::KvLengths;

Status read_lengths(const tw_kv_cache& c, core::KvCache* out) {
  const int given =
      (c.kv_lens != nullptr) + (c.kv_indptr != nullptr) + (c.last_page_len != nullptr);
  if (given > 1) {
    return Status::error(
        Code::kInvalidArgument,
        "kv: %d of kv_lens, kv_indptr and last_page_len are set, wanted at most one", given);
  }
  TW_TRY(check_range("kv.kv_len", c.kv_len, 0, INT32_MAX, "0 or more"));
  if (given == 1 && c.kv_len != 0)
    return invalid_argument("kv.kv_len", static_cast<long long>(c.kv_len),
                            "0 with an array of lengths");
  if (c.last_page_len != nullptr && c.page_indptr == nullptr) {
    return invalid_argument("kv.page_indptr", static_cast<const void*>(nullptr),
                            "an array with last_page_len");
  }
  TW_TRY(check_aligned("kv.kv_lens", c.kv_lens, 4));
  TW_TRY(check_aligned("kv.kv_indptr", c.kv_indptr, 4));
  TW_TRY(check_aligned("kv.last_page_len", c.last_page_len, 4));
  out->lengths = c.kv_lens != nullptr         ? KvLengths::kPerRequest
                 : c.kv_indptr != nullptr     ? KvLengths::kIndptr
                 : c.last_page_len != nullptr ? KvLengths::kLastPage
                                              : KvLengths::kScalar;
  out->kv_len = c.kv_len;
  out->kv_lens = c.kv_lens;
  out->kv_indptr = c.kv_indptr;
  out->last_page_len = c.last_page_len;
  return {};
}

Status read_page_table(const tw_kv_cache& c, const CacheShape& shape, core::KvCache* out) {
  TW_TRY(check_range("kv.page_table_width", c.page_table_width, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("kv.page_table_rows", c.page_table_rows, 0, kMostElements, "0 to 2^58"));
  TW_TRY(check_range("kv.page_indices_len", c.page_indices_len, 0, kMostElements, "0 to 2^58"));
  // Rows without entries have no use for a stride, and nothing bounds it.
  const bool own_stride = c.page_row_stride != 0 && c.page_table_width != 0;
  out->page_row_stride = own_stride ? c.page_row_stride : c.page_table_width;
  out->page_table_rows = c.page_table_rows;
  out->page_indices_len = c.page_indices_len;
  out->table_width = c.page_table_width;
  const bool csr = c.page_indptr != nullptr;
  const Dim none{"", 1, 0};
  if (csr) {
    if (c.page_rows != nullptr)
      return invalid_argument("kv.page_rows", static_cast<const void*>(c.page_rows),
                              "null with page_indptr");
    TW_TRY(check_tensor(
        {"kv.page_table", c.page_table, 4, c.page_indices_len, {none, none, none}, 4, false, false},
        shape.need_pointers));
  } else {
    if (c.page_rows == nullptr && c.page_table_width > 0 && c.page_table_rows < shape.batch) {
      return invalid_argument("kv.page_table_rows", static_cast<long long>(c.page_table_rows),
                              "at least batch without page_rows");
    }
    TW_TRY(check_tensor({"kv.page_table",
                         c.page_table,
                         4,
                         c.page_table_width,
                         {{"row", c.page_table_rows, out->page_row_stride}, none, none},
                         4,
                         false,
                         false},
                        shape.need_pointers));
  }
  TW_TRY(check_aligned("kv.page_indptr", c.page_indptr, 4));
  TW_TRY(check_aligned("kv.page_rows", c.page_rows, 4));
  TW_TRY(check_aligned("kv.first_page", c.first_page, 4));
  out->page_table = c.page_table;
  out->page_rows = c.page_rows;
  out->page_indptr = c.page_indptr;
  out->first_page = c.first_page;
  return {};
}

// What the host can say of the longest request.
Status read_bounds(const tw_kv_cache& c, const CacheShape& shape, core::KvCache* out) {
  TW_TRY(check_range("max_kv_len", shape.max_kv_len, 0, INT32_MAX, "0 or more"));
  std::int64_t capacity = INT32_MAX;
  if (out->layout == KvLayout::kContiguous) {
    out->capacity = c.kv_capacity != 0 ? c.kv_capacity : std::max(shape.max_kv_len, c.kv_len);
    if (out->capacity == 0 && out->lengths != KvLengths::kScalar) {
      return invalid_argument("kv.kv_capacity", 0LL,
                              "the rows of a request's cache (or max_kv_len)");
    }
    capacity = out->capacity;
  } else if (out->layout == KvLayout::kPacked) {
    capacity = out->capacity;
  } else if (c.first_page == nullptr) {
    const std::int64_t pages = c.page_indptr != nullptr ? c.page_indices_len : c.page_table_width;
    capacity = pages > INT32_MAX / out->page_size ? INT32_MAX : pages * out->page_size;
  }
  const std::int64_t bound = shape.max_kv_len != 0 ? shape.max_kv_len : INT32_MAX;
  out->max_kv_len = std::min({bound, capacity, std::int64_t{INT32_MAX}});
  if (out->lengths == KvLengths::kScalar && c.kv_len > out->max_kv_len) {
    return Status::error(Code::kInvalidArgument,
                         "kv.kv_len is %d, wanted at most %lld (max_kv_len and the capacity)",
                         c.kv_len, static_cast<long long>(out->max_kv_len));
  }
  return {};
}

Status check_pool(const char* name, const void* data, const core::KvStrides& s, std::int64_t row,
                  const CacheShape& shape, const core::KvCache& out) {
  const bool packed = out.layout == KvLayout::kPacked;
  const bool paged = out.layout == KvLayout::kPaged;
  const std::int64_t blocks = paged ? out.num_pages : packed ? 1 : shape.batch;
  const std::int64_t rows = paged    ? out.page_size
                            : packed ? out.capacity
                                     : std::max(out.max_kv_len, out.capacity);
  return check_tensor(
      {name,
       data,
       core::size_of(shape.dtype),
       row,
       {{"batch", blocks, s.batch}, {"token", rows, s.token}, {"head", shape.kv_heads, s.head}},
       16,
       shape.written,
       false},
      shape.need_pointers);
}

}  // namespace

Status read_cache(const tw_kv_cache* cache, const CacheShape& shape, core::KvCache* out) {
  tw_kv_cache c;
  TW_TRY(read_struct("kv", cache, &c));
  *out = core::KvCache{};
  TW_TRY(check_range("kv.page_size", c.page_size, 0, INT32_MAX, "0 or more"));
  TW_TRY(check_range("kv.kv_capacity", c.kv_capacity, 0, kMostElements, "0 to 2^58"));
  TW_TRY(check_range("kv.num_pages", c.num_pages, 0, INT32_MAX, "0 to 2^31 - 1"));
  const bool packed = c.kv_indptr != nullptr || shape.by_slot;
  out->layout = c.page_size > 0 ? KvLayout::kPaged
                : packed        ? KvLayout::kPacked
                                : KvLayout::kContiguous;
  out->k = c.k;
  out->v = c.v;
  out->k_stride = {c.k_batch_stride, c.k_token_stride, c.k_head_stride};
  out->v_stride = {c.v_batch_stride, c.v_token_stride, c.v_head_stride};
  out->page_size = c.page_size;
  out->num_pages = c.num_pages;
  out->capacity = c.kv_capacity;
  if (!shape.by_slot) {
    TW_TRY(read_lengths(c, out));
    if (out->layout == KvLayout::kPaged) TW_TRY(read_page_table(c, shape, out));
    TW_TRY(read_bounds(c, shape, out));
  }
  TW_TRY(check_pool("kv.k", c.k, out->k_stride, shape.head_dim, shape, *out));
  return check_pool("kv.v", c.v, out->v_stride, shape.v_head_dim, shape, *out);
}

Status read_new_kv(const tw_new_kv* rows, const CacheShape& shape, const core::TokenRows& tokens,
                   core::NewKv* out) {
  tw_new_kv n;
  TW_TRY(read_struct("append", rows, &n));
  TW_TRY(read_dtype("append.dtype", n.dtype, &shape.dtype, &out->dtype));
  out->k = n.k;
  out->v = n.v;
  out->k_stride = {n.k_batch_stride, n.k_token_stride, n.k_head_stride};
  out->v_stride = {n.v_batch_stride, n.v_token_stride, n.v_head_stride};
  const bool ragged = tokens.q_indptr != nullptr;
  const std::int64_t count = ragged ? tokens.total_q : tokens.q_len;
  const int bytes = core::size_of(out->dtype);
  const auto check = [&](const char* name, const void* data, const core::RowStrides& s,
                         std::int64_t row) {
    return check_tensor({name,
                         data,
                         bytes,
                         row,
                         {{"batch", tokens.batch, s.batch},
                          {"token", count, s.token},
                          {"head", shape.kv_heads, s.head}},
                         16,
                         false,
                         ragged},
                        shape.need_pointers);
  };
  TW_TRY(check("append.k", n.k, out->k_stride, shape.head_dim));
  return check("append.v", n.v, out->v_stride, shape.v_head_dim);
}

}  // namespace tilewise::api
