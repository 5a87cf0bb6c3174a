// A call of tw_qk_prep with buffers of its own, and what its outputs must be: the contract's
// arithmetic once more, one scalar operation at a time, in code that shares nothing with the
// kernels but the element types' roundings.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "tests/unit/ops_support.h"

namespace tilewise::testing {

struct PrepShape {
  core::DType type = core::DType::kBf16;
  std::int32_t batch = 1;
  std::int64_t q_len = 4;
  std::int32_t q_heads = 3, kv_heads = 2, head_dim = 64, rotary_dim = 64;
  std::int64_t table_rows = 64;
  core::DType weight_type = core::DType::kFp32;
  core::DType table_type = core::DType::kFp32;
};

struct PrepCall {
  explicit PrepCall(const PrepShape& s, std::uint64_t seed = 1)
      : shape(s),
        rows(s.batch * s.q_len),
        angles(s.table_type, s.table_rows, s.rotary_dim),
        q(s.type, rows * s.q_heads * s.head_dim),
        k(s.type, rows * s.kv_heads * s.head_dim),
        v(s.type, k.count()),
        q_out(s.type, q.count()),
        k_out(s.type, k.count()),
        v_out(s.type, v.count()),
        q_weight(s.weight_type, s.head_dim),
        k_weight(s.weight_type, s.head_dim) {
    q.fill_normal(seed, 0);
    k.fill_normal(seed, 1);
    v.fill_normal(seed, 2);
    for (std::int64_t d = 0; d < s.head_dim; ++d) {
      q_weight.set(d, 1.0f + 0.1f * normal(seed, 7, d));
      k_weight.set(d, 1.0f + 0.1f * normal(seed, 7, s.head_dim + d));
    }
    p.tokens = dense_rows(s.batch, s.q_len);
    p.dtype = p.kv_dtype = s.type;
    p.weight_dtype = s.weight_type;
    p.q_heads = s.q_heads;
    p.kv_heads = s.kv_heads;
    p.head_dim = s.head_dim;
    const core::RowStrides q_stride = plain_strides(s.q_len, s.q_heads, s.head_dim);
    const core::RowStrides k_stride = plain_strides(s.q_len, s.kv_heads, s.head_dim);
    p.q = {q.data(), q_stride};
    p.k = {k.data(), k_stride};
    p.v = {v.data(), k_stride};
    p.q_out = {q_out.data(), q_stride};
    p.k_out = {k_out.data(), k_stride};
    p.v_out = {v_out.data(), k_stride};
    p.norm = core::Norm::kWeight;
    p.eps = 1e-6f;
    p.q_weight = q_weight.data();
    p.k_weight = k_weight.data();
    p.rope = angles.table;
  }
  PrepCall(const PrepCall&) = delete;
  PrepCall& operator=(const PrepCall&) = delete;

  void use_cache(Cache& cache) {
    p.has_cache = true;
    p.kv_dtype = cache.k.type();
    p.kv = cache.kv;
  }
  // All rows in one sequence: strides of requests count in ragged calls, too.
  void use_ragged(const std::vector<std::int32_t>& q_indptr) {
    p.tokens = ragged_rows(q_indptr, rows);
    for (core::InputRows* in : {&p.q, &p.k, &p.v}) in->stride.batch = 0;
    for (core::OutputRows* out : {&p.q_out, &p.k_out, &p.v_out}) out->stride.batch = 0;
  }
  void run(std::int32_t workers = 1) { cpu::run_qk_prep(p, threads(workers), nullptr); }
  cpu::FaultRecord run_recorded(std::int32_t workers = 1) {
    cpu::FaultRecord record{};
    cpu::run_qk_prep(p, threads(workers), &record);
    return record;
  }

  PrepShape shape;
  std::int64_t rows;
  Angles angles;
  Elements q, k, v, q_out, k_out, v_out, q_weight, k_weight;
  core::QkPrep p{};
};

using Head = std::vector<float>;

// Head `h` of flat row `row` of an array [rows][heads][dim].
inline Head head_of(const Elements& x, std::int64_t heads, std::int64_t dim, std::int64_t row,
                    std::int64_t h) {
  Head head;
  for (std::int64_t d = 0; d < dim; ++d) head.push_back(x[(row * heads + h) * dim + d]);
  return head;
}

inline float emulated_inverse(const Head& x, float eps) {
  float lane[16] = {};
  for (std::size_t d = 0; d < x.size(); ++d) {
    const float square = x[d] * x[d];
    lane[d % 16] = lane[d % 16] + square;
  }
  for (int width : {8, 4, 2, 1}) {
    for (int l = 0; l < width; ++l) lane[l] = lane[l] + lane[l + width];
  }
  const float mean = lane[0] / static_cast<float>(x.size());
  return 1.0f / std::sqrt(mean + eps);
}

inline Head emulated_norm(const core::QkPrep& p, Head x, const Elements& weight) {
  if (p.norm == core::Norm::kNone) return x;
  const float inverse = emulated_inverse(x, p.eps);
  for (std::size_t d = 0; d < x.size(); ++d) {
    float w = weight[static_cast<std::int64_t>(d)];
    if (p.norm == core::Norm::kOnePlusWeight) w = w + 1.0f;
    const float normed = x[d] * inverse;
    x[d] = p.rounding == core::NormRounding::kOnce
               ? core::round_to(p.dtype, normed * w)
               : core::round_to(p.dtype, core::round_to(p.dtype, normed) * w);
  }
  return x;
}

inline Head emulated_rotation(const core::QkPrep& p, Head x, std::int64_t position) {
  if (p.rope.cos == nullptr) return x;
  const auto pairs = static_cast<std::size_t>(p.rope.rotary_dim / 2);
  const bool two_step = p.rounding == core::NormRounding::kTwoStep;
  const auto product = [&](float a, float b) {
    return two_step ? core::round_to(p.dtype, a * b) : a * b;
  };
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const float c =
        core::load_element(p.rope.cos, p.rope.dtype,
                           position * p.rope.cos_row_stride + at * p.rope.cos_element_stride);
    const float s =
        core::load_element(p.rope.sin, p.rope.dtype,
                           position * p.rope.sin_row_stride + at * p.rope.sin_element_stride);
    const bool halves = p.rope.pairs == core::PairStyle::kHalves;
    float& first = x[halves ? i : 2 * i];
    float& second = x[halves ? i + pairs : 2 * i + 1];
    const float a = first;
    const float b = second;
    first = core::round_to(p.dtype, product(a, c) - product(b, s));
    second = core::round_to(p.dtype, product(b, c) + product(a, s));
  }
  return x;
}

inline Head emulated_head(const core::QkPrep& p, const Head& x, const Elements& weight,
                          std::int64_t position) {
  return emulated_rotation(p, emulated_norm(p, x, weight), position);
}

// V of a head whose own row is `v` and whose K row is `k`.
inline Head emulated_v(const core::QkPrep& p, const Head& k, const Head& v) {
  if (p.v_mode == core::VMode::kCopy) return v;
  Head x = p.v_mode == core::VMode::kRms ? v : k;
  const float inverse = emulated_inverse(x, p.eps);
  for (float& value : x) value = core::round_to(p.dtype, value * inverse);
  return x;
}

}  // namespace tilewise::testing
