// A small float32 attention call for unit tests: contiguous cache, zero q and k, one-hot V. Row j
// of V is 1 at j, so with q = 0 the output of a row is 1/n at each of the n keys it sees and 0
// elsewhere. Tests change what they study.
#pragma once

#include <cstdint>
#include <limits>
#include <thread>
#include <vector>

#include "core/attention.h"
#include "cpu/backend.h"

namespace tilewise::testing {

struct CallShape {
  std::int32_t batch = 1, q_heads = 1, kv_heads = 1, head_dim = 8, v_head_dim = 16;
  std::int64_t q_len = 1, keys = 1;
};

struct AttentionCall {
  explicit AttentionCall(const CallShape& shape);

  float& k_at(std::int64_t request, std::int64_t key, std::int64_t head, std::int64_t d) {
    return k[static_cast<std::size_t>(core::k_offset(a.kv, {request, key}, head) + d)];
  }
  float& v_at(std::int64_t request, std::int64_t key, std::int64_t head, std::int64_t d) {
    return v[static_cast<std::size_t>(core::v_offset(a.kv, {request, key}, head) + d)];
  }
  float& q_at(std::int64_t row, std::int64_t head, std::int64_t d) {
    return q[static_cast<std::size_t>(row * a.q_stride.token + head * a.q_stride.head + d)];
  }
  float o_at(std::int64_t row, std::int64_t head, std::int64_t d) const {
    return o[static_cast<std::size_t>(row * a.o_stride.token + head * a.o_stride.head + d)];
  }
  float lse_at(std::int64_t row, std::int64_t head) const {
    return lse[static_cast<std::size_t>(row * a.lse_stride.token + head)];
  }

  // Pages of `page_size` rows over the same buffers: page p holds rows p * page_size onwards.
  void use_pages(std::int32_t page_size, const std::vector<std::int32_t>& table,
                 std::int32_t width);

  // The keys that a row with q = 0 saw, from its one-hot output.
  std::vector<std::int64_t> seen(std::int64_t row, std::int64_t head = 0) const;

  void run(std::int32_t workers = 1);

  core::Attention a{};
  std::vector<float> q, k, v, o, lse;
  std::vector<std::int32_t> page_table;
};

// Runs every task on a thread of its own.
inline void thread_per_task(void*, std::int64_t tasks, cpu::Task task, void* context) {
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < tasks; ++i) threads.emplace_back(task, context, i);
  for (std::thread& thread : threads) thread.join();
}

inline AttentionCall::AttentionCall(const CallShape& s) {
  a.q_dtype = a.kv_dtype = a.o_dtype = core::DType::kFp32;
  a.batch = s.batch;
  a.q_heads = s.q_heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.v_head_dim = s.v_head_dim;
  a.q_len = a.max_q_len = s.q_len;
  a.total_q = s.batch * s.q_len;
  const std::int64_t q_row = s.q_heads * s.head_dim;
  const std::int64_t o_row = s.q_heads * s.v_head_dim;
  const std::int64_t k_row = s.kv_heads * s.head_dim;
  const std::int64_t v_row = s.kv_heads * s.v_head_dim;
  a.q_stride = {s.q_len * q_row, q_row, s.head_dim};
  a.o_stride = {s.q_len * o_row, o_row, s.v_head_dim};
  a.lse_stride = {s.q_len * s.q_heads, s.q_heads, 1};
  a.kv.k_stride = {s.keys * k_row, k_row, s.head_dim};
  a.kv.v_stride = {s.keys * v_row, v_row, s.v_head_dim};
  a.kv.layout = core::KvLayout::kContiguous;
  a.kv.lengths = core::KvLengths::kScalar;
  a.kv.capacity = a.kv.max_kv_len = a.kv.kv_len = s.keys;
  a.append.dtype = core::DType::kFp32;
  a.scale = 1.0f;
  const float poison = std::numeric_limits<float>::quiet_NaN();
  q.assign(static_cast<std::size_t>(a.total_q * q_row), 0.0f);
  k.assign(static_cast<std::size_t>(s.batch * s.keys * k_row), 0.0f);
  v.assign(static_cast<std::size_t>(s.batch * s.keys * v_row), 0.0f);
  o.assign(static_cast<std::size_t>(a.total_q * o_row), poison);
  lse.assign(static_cast<std::size_t>(a.total_q * s.q_heads), poison);
  a.kv.k = k.data();
  a.kv.v = v.data();
  for (std::int64_t r = 0; r < s.batch; ++r) {
    for (std::int64_t j = 0; j < s.keys && j < s.v_head_dim; ++j) {
      for (std::int64_t h = 0; h < s.kv_heads; ++h) v_at(r, j, h, j) = 1.0f;
    }
  }
}

inline void AttentionCall::use_pages(std::int32_t page_size, const std::vector<std::int32_t>& table,
                                     std::int32_t width) {
  page_table = table;
  a.kv.layout = core::KvLayout::kPaged;
  a.kv.page_size = page_size;
  a.kv.num_pages = a.batch * a.kv.capacity / page_size;
  a.kv.k_stride.batch = page_size * a.kv.k_stride.token;
  a.kv.v_stride.batch = page_size * a.kv.v_stride.token;
  a.kv.table_width = width;
  a.kv.page_row_stride = width;
  a.kv.page_table_rows = static_cast<std::int64_t>(table.size()) / width;
  a.kv.page_table = page_table.data();
}

inline std::vector<std::int64_t> AttentionCall::seen(std::int64_t row, std::int64_t head) const {
  std::vector<std::int64_t> keys;
  for (std::int64_t d = 0; d < a.v_head_dim; ++d) {
    if (o_at(row, head, d) != 0.0f) keys.push_back(d);
  }
  return keys;
}

inline void AttentionCall::run(std::int32_t workers) {
  a.q = q.data();
  a.o = o.data();
  a.lse = lse.data();
  cpu::reference_attention(a, {thread_per_task, nullptr, workers});
}

}  // namespace tilewise::testing
