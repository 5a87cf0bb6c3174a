// Sizes of a call's arrays, as the header of the C ABI gives them.
#include "verify/device_call.h"

#include <algorithm>

#include "verify/numbers.h"

namespace tilewise::verify {
namespace {

// A strided tensor of rows: counts and strides from outside in, `row` elements each.
struct Tensor {
  Index counts[3], strides[3];
  Index row;
  tw_dtype type;
};

// First byte of a tensor, counted from where (0, 0, 0) lies, and how many there are.
struct Extent {
  Index first, bytes;
};

Extent extent_of(const Tensor& t) {
  Index low = 0, high = t.row;
  for (int n = 0; n < 3; ++n) {
    if (t.counts[n] <= 0) return {0, 0};
    const Index reach = (t.counts[n] - 1) * t.strides[n];
    low += std::min<Index>(reach, 0);
    high += std::max<Index>(reach, 0);
  }
  const Index size = element_bytes(t.type);
  return {low * size, (high - low) * size};
}

void add_tensor(Mirror* mirror, const void* base, const Tensor& t, bool output) {
  if (base == nullptr) return;
  const Extent extent = extent_of(t);
  auto* first = static_cast<std::uint8_t*>(const_cast<void*>(base)) + extent.first;
  if (output) {
    mirror->add_output(first, extent.bytes);
  } else {
    mirror->add_input(first, extent.bytes);
  }
}

template <class T>
void add_array(Mirror* mirror, const T* array, Index count) {
  mirror->add_input(array, count * static_cast<Index>(sizeof(T)));
}

tw_dtype type_or(tw_dtype type, tw_dtype fallback) {
  return type != TW_DTYPE_DEFAULT ? type : fallback;
}

Index value_dim(const tw_attention_args& a) {
  return a.v_head_dim != 0 ? a.v_head_dim : a.head_dim;
}

}  // namespace

void use_device(tw_target* target) {
  target->struct_size = sizeof *target;
  target->device_kind = TW_DEVICE_CUDA;
  target->device_index = 0;
  target->parallel_for = nullptr;
  target->stream = tools::thread_stream().get();
}

DeviceCall::DeviceCall(const tw_attention_args& host, const std::vector<const Block*>& blocks)
    : args_(host) {
  for (const Block* block : blocks) mirror_.add(*block);
  use_device(&target_);
  kv_ = *host.kv;
  if (host.append != nullptr) append_ = *host.append;
  if (host.mask != nullptr) mask_ = *host.mask;
  add_rows();
  add_cache();
  add_mask();
  mirror_.add_output(host.status, sizeof *host.status);
  mirror_.add_output(host.workspace, static_cast<Index>(host.workspace_bytes));
  mirror_.upload();
  translate();
}

// What has a row for every q row: q, o, LSE, positions, appended rows; and the small arrays.
void DeviceCall::add_rows() {
  const tw_attention_args& a = args_;
  const bool ragged = a.q_indptr != nullptr;
  const Index batch = ragged ? 1 : a.batch, rows = ragged ? a.total_q : a.q_len;
  const tw_dtype kv_type = type_or(a.kv_dtype, a.q_dtype);
  const auto tensor = [&](Index heads, Index b, Index t, Index h, Index row, tw_dtype type) {
    return Tensor{{batch, rows, heads}, {b, t, h}, row, type};
  };
  add_tensor(
      &mirror_, a.q,
      tensor(a.q_heads, a.q_batch_stride, a.q_token_stride, a.q_head_stride, a.head_dim, a.q_dtype),
      false);
  add_tensor(&mirror_, a.o,
             tensor(a.q_heads, a.o_batch_stride, a.o_token_stride, a.o_head_stride, value_dim(a),
                    type_or(a.o_dtype, a.q_dtype)),
             true);
  add_tensor(
      &mirror_, a.lse,
      tensor(a.q_heads, a.lse_batch_stride, a.lse_row_stride, a.lse_head_stride, 1, TW_DTYPE_FP32),
      true);
  const tw_new_kv& n = append_;
  const tw_dtype new_type = type_or(n.dtype, kv_type);
  add_tensor(
      &mirror_, n.k,
      tensor(a.kv_heads, n.k_batch_stride, n.k_token_stride, n.k_head_stride, a.head_dim, new_type),
      false);
  add_tensor(&mirror_, n.v,
             tensor(a.kv_heads, n.v_batch_stride, n.v_token_stride, n.v_head_stride, value_dim(a),
                    new_type),
             false);
  add_array(&mirror_, a.q_indptr, a.batch + 1);
  add_array(&mirror_, a.q_positions, batch * rows);
  add_array(&mirror_, a.q_start, a.batch);
  add_array(&mirror_, a.sinks, a.q_heads);
  const Index slope_rows = a.alibi_batch_stride != 0 ? a.batch : 1;
  add_array(&mirror_, a.alibi_slopes, (slope_rows - 1) * a.alibi_batch_stride + a.q_heads);
}

void DeviceCall::add_cache() {
  const tw_attention_args& a = args_;
  const tw_kv_cache& c = kv_;
  const bool paged = c.page_size > 0, packed = !paged && c.kv_indptr != nullptr;
  const Index capacity = c.kv_capacity != 0  ? c.kv_capacity
                         : a.max_kv_len != 0 ? a.max_kv_len
                                             : c.kv_len;
  const Index blocks = paged ? c.num_pages : packed ? 1 : a.batch;
  const Index rows = paged ? c.page_size : capacity;
  const tw_dtype type = type_or(a.kv_dtype, a.q_dtype);
  const bool written = a.append != nullptr;
  const Tensor k{{blocks, rows, a.kv_heads},
                 {c.k_batch_stride, c.k_token_stride, c.k_head_stride},
                 a.head_dim,
                 type};
  const Tensor v{{blocks, rows, a.kv_heads},
                 {c.v_batch_stride, c.v_token_stride, c.v_head_stride},
                 value_dim(a),
                 type};
  add_tensor(&mirror_, c.k, k, written);
  add_tensor(&mirror_, c.v, v, written);
  add_array(&mirror_, c.kv_lens, a.batch);
  add_array(&mirror_, c.kv_indptr, a.batch + 1);
  add_array(&mirror_, c.last_page_len, a.batch);
  const Index width = c.page_row_stride != 0 ? c.page_row_stride : c.page_table_width;
  const Index table =
      c.page_table_rows > 0 ? (c.page_table_rows - 1) * width + c.page_table_width : 0;
  add_array(&mirror_, c.page_table, c.page_indptr != nullptr ? c.page_indices_len : table);
  add_array(&mirror_, c.page_rows, a.batch);
  add_array(&mirror_, c.page_indptr, a.batch + 1);
  add_array(&mirror_, c.first_page, a.batch);
}

void DeviceCall::add_mask() {
  const tw_attention_args& a = args_;
  const tw_mask& m = mask_;
  const Index rows = a.q_indptr == nullptr ? a.q_len : a.max_q_len != 0 ? a.max_q_len : a.total_q;
  const Index reach = (a.batch - 1) * m.batch_stride + (a.q_heads - 1) * m.head_stride +
                      (rows - 1) * m.row_stride + m.width;
  add_array(&mirror_, m.data, m.bytes != 0 ? m.bytes : reach);
  add_array(&mirror_, m.offset, a.batch);
  add_array(&mirror_, m.first_key, a.batch);
}

void DeviceCall::translate() {
  const auto move = [this](auto*... fields) { ((*fields = mirror_.at(*fields)), ...); };
  move(&args_.q, &args_.o, &args_.lse, &args_.q_indptr, &args_.q_positions, &args_.q_start,
       &args_.sinks, &args_.alibi_slopes, &args_.status, &args_.workspace);
  move(&kv_.k, &kv_.v, &kv_.kv_lens, &kv_.kv_indptr, &kv_.last_page_len, &kv_.page_table,
       &kv_.page_rows, &kv_.page_indptr, &kv_.first_page);
  move(&append_.k, &append_.v);
  move(&mask_.data, &mask_.offset, &mask_.first_key);
  args_.target = &target_;
  args_.kv = &kv_;
  if (args_.append != nullptr) args_.append = &append_;
  if (args_.mask != nullptr) args_.mask = &mask_;
}

}  // namespace tilewise::verify
