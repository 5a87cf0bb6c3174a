// Timed attention: dense queries over a contiguous or paged cache in the same order of dimensions.
#include <algorithm>
#include <numeric>
#include <random>

#include "bench/workload.h"
#include "common/variants.h"

namespace tilewise::bench {
namespace {

// Pages in an order that no prefetcher can guess.
std::vector<std::int32_t> shuffled_pages(std::int64_t pages) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 generator(20);
  std::shuffle(order.begin(), order.end(), generator);
  return order;
}

// K and V of a request lie in one allocation, K first, so that a read limit can stream what the
// call reads.
class AttentionWorkload final : public Workload {
 public:
  AttentionWorkload(const Shape& shape, std::int32_t threads)
      : shape_(shape),
        row_(std::int64_t{shape.kv_heads} * shape.head_dim),
        rows_(rows_of(shape)),
        q_(shape.dtype, q_elements(), 1),
        o_(shape.dtype, q_elements(), 2),
        cache_(shape.dtype, 2 * rows_ * row_, 3),
        pages_(shape.page_size > 0 ? shuffled_pages(rows_ / shape.page_size)
                                   : std::vector<std::int32_t>()) {
    target_.threads = threads;
    describe_cache();
    describe_call();
    const std::uint64_t bytes = attention_workspace(args_);
    workspace_ = std::make_unique<Tensor>(TW_DTYPE_FP32,
                                          static_cast<std::int64_t>(bytes / sizeof(float)) + 1, 4);
    args_.workspace = workspace_->data();
    args_.workspace_bytes = bytes;
  }

  void run() override { attention(args_); }

  tools::Variant variant() const override { return tools::running_variant(args_); }

  double flops() const override {
    const double pairs = 1.0 * shape_.batch * shape_.q_heads * shape_.q_len * shape_.kv_len;
    return 4.0 * pairs * shape_.head_dim * (shape_.causal && shape_.q_len > 1 ? 0.5 : 1.0);
  }

  double bytes() const override {
    const double cache = 2.0 * shape_.batch * shape_.kv_len * static_cast<double>(row_);
    return (cache + 2.0 * static_cast<double>(q_elements())) *
           static_cast<double>(dtype_bytes(shape_.dtype));
  }

  LimitKind limit() const override {
    if (shape_.q_len == 1) return LimitKind::kRead;
    return variant().name.find("AMX") != std::string::npos ? LimitKind::kAmx : LimitKind::kFma;
  }

  MemoryRange source() const override { return cache_.range(); }
  MemoryRange target() const override { return o_.range(); }

 private:
  static std::int64_t rows_of(const Shape& shape) {
    const std::int64_t unit = std::max(shape.page_size, 1);
    return shape.batch * ((shape.kv_len + unit - 1) / unit * unit);
  }

  std::int64_t q_elements() const {
    return std::int64_t{shape_.batch} * shape_.q_len * shape_.q_heads * shape_.head_dim;
  }

  void describe_cache() {
    kv_.k = cache_.data();
    kv_.v = cache_.at(rows_ * row_);
    const std::int64_t unit =
        shape_.page_size == 0 ? shape_.kv_len : shape_.page_size;  // rows of a request or page
    kv_.k_token_stride = kv_.v_token_stride = shape_.head_major ? shape_.head_dim : row_;
    kv_.k_head_stride = kv_.v_head_stride =
        shape_.head_major ? unit * shape_.head_dim : shape_.head_dim;
    kv_.k_batch_stride = kv_.v_batch_stride = unit * row_;
    kv_.kv_len = shape_.kv_len;
    if (shape_.page_size == 0) {
      kv_.kv_capacity = shape_.kv_len;
      return;
    }
    kv_.page_size = shape_.page_size;
    kv_.num_pages = rows_ / shape_.page_size;
    kv_.page_table = pages_.data();
    kv_.page_table_rows = shape_.batch;
    kv_.page_table_width = static_cast<std::int32_t>(kv_.num_pages / shape_.batch);
  }

  void describe_call() {
    args_.target = &target_;
    if (shape_.causal) args_.flags = TW_CAUSAL;
    args_.q_dtype = shape_.dtype;
    args_.batch = shape_.batch;
    args_.q_heads = shape_.q_heads;
    args_.kv_heads = shape_.kv_heads;
    args_.head_dim = shape_.head_dim;
    args_.q_len = shape_.q_len;
    args_.max_kv_len = shape_.kv_len;
    args_.q = q_.data();
    args_.o = o_.data();
    const std::int64_t dim = shape_.head_dim;
    args_.q_token_stride = args_.o_token_stride = shape_.head_major ? dim : shape_.q_heads * dim;
    args_.q_head_stride = args_.o_head_stride = shape_.head_major ? shape_.q_len * dim : dim;
    args_.q_batch_stride = args_.o_batch_stride = shape_.q_len * shape_.q_heads * dim;
    args_.kv = &kv_;
  }

  Shape shape_;
  std::int64_t row_;   // elements of a token in K or V
  std::int64_t rows_;  // tokens in the cache, whole pages
  Tensor q_, o_, cache_;
  std::vector<std::int32_t> pages_;
  std::unique_ptr<Tensor> workspace_;
  tw_target target_ = make<tw_target>();
  tw_kv_cache kv_ = make<tw_kv_cache>();
  tw_attention_args args_ = make<tw_attention_args>();
};

}  // namespace

std::unique_ptr<Workload> make_attention(const Shape& shape, std::int32_t threads) {
  return std::make_unique<AttentionWorkload>(shape, threads);
}

}  // namespace tilewise::bench
