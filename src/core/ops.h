// Checked calls of the small operations around attention, as api/ hands them to a backend.
#pragma once

#include <cstdint>

#include "core/attention.h"

namespace tilewise::core {

enum class Norm : std::int32_t { kNone = 0, kWeight = 1, kOnePlusWeight = 2 };
enum class NormRounding : std::int32_t { kOnce = 0, kTwoStep = 1 };
enum class VMode : std::int32_t { kCopy = 0, kRms = 1, kFromRawK = 2 };
enum class PairStyle : std::int32_t { kHalves = 0, kInterleaved = 1 };

// Which tokens a call covers: dense or ragged rows of `batch` requests.
struct TokenRows {
  std::int32_t batch;
  std::int64_t q_len, total_q, max_q_len;
  const std::int32_t* q_indptr;
};

struct RopeTable {
  const void* cos;  // null: no rotation
  const void* sin;
  DType dtype;
  std::int64_t cos_row_stride, cos_element_stride, sin_row_stride, sin_element_stride;
  std::int64_t rows;
  std::int32_t rotary_dim;
  PairStyle pairs;
};

struct InputRows {
  const void* data;
  RowStrides stride;
};

struct OutputRows {
  void* data;
  RowStrides stride;
};

struct QkPrep {
  TokenRows tokens;
  DType dtype, kv_dtype, weight_dtype;
  std::int32_t q_heads, kv_heads, head_dim;
  InputRows q, k, v;               // data null: not given
  OutputRows q_out, k_out, v_out;  // data null: not wanted
  Norm norm;
  NormRounding rounding;
  float eps;
  const void* q_weight;
  const void* k_weight;
  VMode v_mode;
  RopeTable rope;
  const std::int32_t* positions;
  const std::int32_t* start;
  bool has_cache;
  KvCache kv;  // valid if has_cache
  const std::int32_t* slot_mapping;
};

struct Rope {
  TokenRows tokens;
  DType dtype;
  std::int32_t heads, head_dim;
  InputRows x;
  OutputRows out;
  RopeTable rope;
  const std::int32_t* positions;
  const std::int32_t* start;
};

struct KvAppend {
  TokenRows tokens;
  DType kv_dtype;
  std::int32_t kv_heads, head_dim, v_head_dim;
  NewKv rows;
  KvCache kv;
  const std::int32_t* batch_indices;  // with positions: row -> request
  const std::int32_t* positions;
  const std::int32_t* slot_mapping;
};

struct MergeStates {
  DType dtype, out_dtype;
  std::int32_t states, heads, v_head_dim;
  std::int64_t rows;
  const void* o;
  std::int64_t o_state_stride, o_row_stride, o_head_stride;
  const float* lse;
  std::int64_t lse_state_stride, lse_row_stride, lse_head_stride;
  const float* sinks;
  void* out;
  std::int64_t out_row_stride, out_head_stride;
  float* out_lse;
  std::int64_t out_lse_row_stride, out_lse_head_stride;
};

struct OutputGate {
  DType dtype;
  std::int64_t rows;
  std::int32_t heads, head_dim;
  void* o;
  std::int64_t o_row_stride, o_head_stride;
  const void* gate;
  std::int64_t gate_row_stride, gate_head_stride;
};

enum class ElementwiseOp : std::int32_t { kSoftcap, kScale };

struct Elementwise {
  ElementwiseOp op;
  DType dtype;
  void* x;
  std::int64_t n;
  float value;
};

}  // namespace tilewise::core
