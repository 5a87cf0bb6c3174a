// See kv_cache.h.
#include "generate/kv_cache.h"

#include <algorithm>
#include <cassert>

#include "generate/error.h"

namespace tilewise::generate {
namespace {

constexpr std::size_t kAlignment = 64;
// A request for more is a wrong option, not a plan.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;

std::int32_t pages_for(std::int32_t rows, std::int32_t page_size) {
  return rows / page_size + (rows % page_size != 0 ? 1 : 0);
}

}  // namespace

KvCache::KvCache(const CacheShape& shape, const std::vector<std::int32_t>& max_rows)
    : shape_(shape) {
  std::int64_t pages = 0;
  for (const std::int32_t rows : max_rows) {
    const std::int32_t count = pages_for(rows, shape.page_size);
    pages += count;
    width_ = std::max(width_, count);
  }
  const std::int64_t element_bytes = shape.dtype == TW_DTYPE_FP32 ? 4 : 2;
  const std::int64_t row_bytes = element_bytes * shape.kv_heads * shape.head_dim;
  std::int64_t half = 0;
  std::int64_t total = 0;
  if (__builtin_mul_overflow(pages * shape.page_size, row_bytes, &half) ||
      __builtin_mul_overflow(half, std::int64_t{2} * shape.layers, &total) || total > kMaxBytes) {
    throw InputError("--page-size: the cache would need more than a terabyte");
  }
  num_pages_ = static_cast<std::int32_t>(pages);
  half_bytes_ = static_cast<std::size_t>(half);
  storage_.resize(static_cast<std::size_t>(total) + kAlignment);
  offset_ =
      (kAlignment - reinterpret_cast<std::uintptr_t>(storage_.data()) % kAlignment) % kAlignment;
  table_.assign(max_rows.size() * static_cast<std::size_t>(width_), -1);
  used_.assign(max_rows.size(), 0);
  for (std::int32_t page = num_pages_; page > 0; --page) free_.push_back(page - 1);
}

void KvCache::reserve(std::int32_t request, std::int32_t rows) {
  const auto r = static_cast<std::size_t>(request);
  const std::int32_t wanted = pages_for(rows, shape_.page_size);
  assert(wanted <= width_);
  for (; used_[r] < wanted; ++used_[r]) {
    assert(!free_.empty());
    table_[r * static_cast<std::size_t>(width_) + static_cast<std::size_t>(used_[r])] =
        free_.back();
    free_.pop_back();
  }
}

void KvCache::release(std::int32_t request) {
  const auto r = static_cast<std::size_t>(request);
  std::int32_t* row = table_.data() + r * static_cast<std::size_t>(width_);
  for (; used_[r] > 0; --used_[r]) {
    free_.push_back(row[used_[r] - 1]);
    row[used_[r] - 1] = -1;
  }
}

tw_kv_cache KvCache::view(std::int32_t layer, const std::int32_t* page_rows,
                          const std::int32_t* kv_lens) const {
  std::byte* base = storage_.data() + offset_ + 2 * half_bytes_ * static_cast<std::size_t>(layer);
  tw_kv_cache kv{};
  kv.struct_size = sizeof(kv);
  kv.page_size = shape_.page_size;
  kv.k = base;
  kv.v = base + half_bytes_;
  kv.k_head_stride = kv.v_head_stride = shape_.head_dim;
  kv.k_token_stride = kv.v_token_stride = std::int64_t{shape_.head_dim} * shape_.kv_heads;
  kv.k_batch_stride = kv.v_batch_stride = kv.k_token_stride * shape_.page_size;
  kv.kv_lens = kv_lens;
  kv.page_table = table_.data();
  kv.page_table_width = width_;
  kv.page_table_rows = static_cast<std::int64_t>(used_.size());
  kv.page_rows = page_rows;
  kv.num_pages = num_pages_;
  return kv;
}

}  // namespace tilewise::generate
