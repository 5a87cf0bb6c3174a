// The paged K/V cache of a run: one pool of pages for every layer, pages handed out as requests
// grow, one block table for all layers.
#pragma once

#include <tilewise/tilewise.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "generate/config.h"

namespace tilewise::generate {

struct CacheShape {
  std::int32_t layers, kv_heads, head_dim;
  tw_dtype dtype;
  std::int32_t page_size;
};

class KvCache {
 public:
  // Room for requests of at most max_rows[r] rows each.
  KvCache(const CacheShape& shape, const std::vector<std::int32_t>& max_rows);

  // Gives request r pages for its first `rows` rows.
  void reserve(std::int32_t request, std::int32_t rows);
  // Takes the pages of a request back for others.
  void release(std::int32_t request);

  // Cache of one layer for the requests page_rows[0..batch) with lengths kv_lens[0..batch); both
  // arrays must outlive the result.
  tw_kv_cache view(std::int32_t layer, const std::int32_t* page_rows,
                   const std::int32_t* kv_lens) const;

  std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
  std::size_t bytes() const { return storage_.size(); }

 private:
  CacheShape shape_;
  std::int32_t num_pages_ = 0;
  std::int32_t width_ = 0;                  // pages of the longest request
  std::vector<std::int32_t> table_;         // [requests, width_], -1 = no page
  std::vector<std::int32_t> used_;          // pages of each request
  std::vector<std::int32_t> free_;          // a stack
  mutable std::vector<std::byte> storage_;  // [layers, 2, pages, page_size, kv_heads, head_dim]
  std::size_t half_bytes_ = 0;              // K or V of one layer
  std::size_t offset_ = 0;                  // to the first 64-byte boundary of storage_
};

}  // namespace tilewise::generate
