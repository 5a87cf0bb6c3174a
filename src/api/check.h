// Checks that every entry point shares. What passes them can be addressed with int64 arithmetic
// without overflow.
#pragma once

#include <tilewise/tilewise.h>

#include <cstdint>

#include "core/attention.h"
#include "core/ops.h"
#include "core/status.h"
#include "cpu/parallel.h"
#include "cuda/backend.h"

namespace tilewise::api {

using core::Status;

// Extent of any addressed array, in elements and in bytes: sums and products of offsets stay far
// from overflow.
constexpr std::int64_t kMostElements = std::int64_t{1} << 58;

struct Dim {
  const char* name;  // "batch", "token", "head", ...: the stride argument is <tensor>_<name>_stride
  std::int64_t count;
  std::int64_t stride;
};

struct Tensor {
  const char* name;
  const void* data;
  int element_bytes;
  std::int64_t row;  // contiguous elements at the innermost dimension
  Dim dims[3];
  int align_bytes;
  bool written;  // strides must be positive and rows apart
  bool ragged;   // dims[0] shifts requests whose rows dims[1] counts in all
};

// `need_pointer` false: strides are checked, the pointer may still be null (workspace queries meet
// the same refusals as the call).
Status check_tensor(const Tensor& t, bool need_pointer = true);

// `a * b` with both >= 0, refused where the product is no extent of an array.
Status checked_product(const char* name, std::int64_t a, std::int64_t b, std::int64_t* product);

Status check_range(const char* name, long long value, long long low, long long high,
                   const char* wanted);
Status check_aligned(const char* name, const void* data, std::size_t bytes);
Status check_present(const char* name, const void* data, const char* wanted);
Status check_head_dim(const char* name, std::int32_t value);
Status check_reserved(const char* name, bool is_zero);

// Element type `value`, or `fallback` (if it is not null) where value is TW_DTYPE_DEFAULT.
Status read_dtype(const char* name, tw_dtype value, const core::DType* fallback, core::DType* out);

// Where a call runs: CPU workers, or a CUDA device and stream.
struct Target {
  bool on_cuda;
  cpu::Parallel parallel;
  cuda::Queue queue;
};

// Fails for backends that this build does not have. Whether the device is there is asked when a
// call is about to run (cuda::check_device), since workspace queries and explain need none.
Status read_target(const tw_target* target, Target* out);

// Rows of a call that is dense (q_len a request) or ragged (q_indptr, total_q).
struct RowArguments {
  std::int32_t batch;
  std::int64_t q_len, max_q_len, total_q;
  const std::int32_t* q_indptr;
};
Status read_rows(const RowArguments& in, core::TokenRows* out);

// Checks and translates a cache that serves `rows.batch` requests.
struct CacheShape {
  std::int32_t batch;
  std::int32_t kv_heads, head_dim, v_head_dim;
  core::DType dtype;
  std::int32_t max_kv_len;
  bool written;
  bool by_slot;        // lengths and page table are not used
  bool need_pointers;  // see check_tensor
};
Status read_cache(const tw_kv_cache* cache, const CacheShape& shape, core::KvCache* out);

Status read_new_kv(const tw_new_kv* rows, const CacheShape& shape, const core::TokenRows& tokens,
                   core::NewKv* out);

Status read_rope_table(const tw_rope_table* table, std::int32_t head_dim, core::RopeTable* out);

}  // namespace tilewise::api
