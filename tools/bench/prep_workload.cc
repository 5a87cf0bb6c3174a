// Timed tw_qk_prep: one request's prompt, heads packed side by side in a token's row as a fused
// projection leaves them.
#include "bench/workload.h"

namespace tilewise::bench {
namespace {

class PrepWorkload final : public Workload {
 public:
  PrepWorkload(const Shape& shape, std::int32_t threads)
      : shape_(shape),
        input_(shape.dtype, elements(), 1),
        output_(shape.dtype, elements(), 2),
        weights_(shape.dtype, 2 * std::int64_t{shape.head_dim}, 3),
        table_(TW_DTYPE_FP32, std::int64_t{shape.q_len} * shape.head_dim, 4) {
    target_.threads = threads;
    describe_rope();
    describe_call();
  }

  void run() override { qk_prep(args_); }
  tools::Variant variant() const override { return {}; }

  // Square and add for the norm, two products to scale, three operations an element for the
  // rotation.
  double flops() const override {
    return 7.0 * static_cast<double>(std::int64_t{shape_.q_len} *
                                     (shape_.q_heads + shape_.kv_heads) * shape_.head_dim);
  }

  double bytes() const override {
    return 2.0 * static_cast<double>(elements() * dtype_bytes(shape_.dtype));
  }

  LimitKind limit() const override { return LimitKind::kCopy; }
  MemoryRange source() const override { return input_.range(); }
  MemoryRange target() const override { return output_.range(); }

 private:
  std::int64_t q_row() const { return std::int64_t{shape_.q_heads} * shape_.head_dim; }
  std::int64_t kv_row() const { return std::int64_t{shape_.kv_heads} * shape_.head_dim; }
  std::int64_t elements() const { return shape_.q_len * (q_row() + 2 * kv_row()); }

  void describe_rope() {
    const std::int64_t half = shape_.head_dim / 2;
    rope_.cos = table_.data();
    rope_.sin = table_.at(shape_.q_len * half);
    rope_.cos_row_stride = rope_.sin_row_stride = half;
    rope_.rows = shape_.q_len;
    rope_.rotary_dim = shape_.head_dim;
  }

  // Input: q, k and v of a token in one row. Output: all of q, then the cache's K, then its V.
  void describe_call() {
    args_.dtype = shape_.dtype;
    args_.target = &target_;
    args_.batch = 1;
    args_.q_len = shape_.q_len;
    args_.q_heads = shape_.q_heads;
    args_.kv_heads = shape_.kv_heads;
    args_.head_dim = shape_.head_dim;
    args_.q = input_.data();
    args_.k = input_.at(q_row());
    args_.v = input_.at(q_row() + kv_row());
    args_.q_token_stride = args_.k_token_stride = args_.v_token_stride = q_row() + 2 * kv_row();
    args_.q_head_stride = args_.k_head_stride = args_.v_head_stride = shape_.head_dim;
    args_.q_out = output_.data();
    args_.q_out_token_stride = q_row();
    args_.q_out_head_stride = shape_.head_dim;
    args_.norm = TW_NORM_WEIGHT;
    args_.eps = 1e-6F;
    args_.q_weight = weights_.data();
    args_.k_weight = weights_.at(shape_.head_dim);
    args_.rope = &rope_;
    args_.kv = &kv_;
    kv_.k = output_.at(shape_.q_len * q_row());
    kv_.v = output_.at(shape_.q_len * (q_row() + kv_row()));
    kv_.k_token_stride = kv_.v_token_stride = kv_row();
    kv_.k_head_stride = kv_.v_head_stride = shape_.head_dim;
    kv_.k_batch_stride = kv_.v_batch_stride = shape_.q_len * kv_row();
    kv_.kv_capacity = kv_.kv_len = shape_.q_len;
  }

  Shape shape_;
  Tensor input_, output_, weights_, table_;
  tw_target target_ = make<tw_target>();
  tw_rope_table rope_ = make<tw_rope_table>();
  tw_kv_cache kv_ = make<tw_kv_cache>();
  tw_qk_prep_args args_ = make<tw_qk_prep_args>();
};

}  // namespace

std::unique_ptr<Workload> make_qk_prep(const Shape& shape, std::int32_t threads) {
  return std::make_unique<PrepWorkload>(shape, threads);
}

}  // namespace tilewise::bench
