// Laying out pools, tables and lengths.
#include "verify/cache.h"

#include <algorithm>
#include <numeric>

namespace tilewise::verify {
namespace {

constexpr Index kPackedOrigin = 3;  // rows of a packed cache that belong to nobody
constexpr Index kSparePages = 2;
constexpr Index kCsrOrigin = 2;  // index entries before the first request's

// Pages [0, count) in the order of their words: any pool of a long-running engine looks like this.
std::vector<Index> permuted(Index count, std::uint64_t seed) {
  std::vector<Index> pages(static_cast<std::size_t>(count));
  std::iota(pages.begin(), pages.end(), Index{0});
  const Stream stream(seed, kPages);
  std::sort(pages.begin(), pages.end(),
            [&](Index a, Index b) { return stream.word(a + 1) < stream.word(b + 1); });
  return pages;
}

Index pages_of(const Problem& p, Index r) {
  const Index size = p.c().page_size;
  return std::max<Index>((p.kv_len(r) + size - 1) / size - p.released_pages(r), 0);
}

}  // namespace

Cache::Cache(const Problem& p) : p_(p) {
  const Case& c = p.c();
  args_.struct_size = sizeof args_;
  if (c.paged()) {
    first_slot_ = {0};
    for (Index r = 0; r < c.batch(); ++r)
      first_slot_.push_back(first_slot_.back() + pages_of(p, r));
    blocks_ = first_slot_.back() + kSparePages;
    rows_ = c.page_size;
    page_of_ = permuted(blocks_, c.seed + 31 * c.pool_seed);
  } else {
    const bool packed = c.storage == Storage::kPacked;
    blocks_ = packed ? 1 : c.batch();
    rows_ = packed ? kPackedOrigin + p.keys() + 2
                   : std::max<Index>(c.most_keys(), 1) + (c.slack ? 37 : 0);
  }
  lay_out();
  write_rows();
  make_lengths();
  if (c.paged()) make_table();
}

// Padding keeps rows 16 bytes apart at least, and makes K's and V's strides differ.
Strides Cache::pool(Index blocks, Index rows, Index dim, Order order, Index pad) const {
  const Index heads = p_.c().kv_heads;
  const Index wide = dim + pad;
  Strides s;
  s.head = order == Order::kHeadMajor ? rows * wide : wide;
  s.token = order == Order::kHeadMajor ? wide : heads * wide;
  s.batch = rows * heads * wide + (pad != 0 ? 16 : 0);
  s.extent = blocks * s.batch;
  return s;
}

void Cache::lay_out() {
  const Case& c = p_.c();
  const Index bytes = element_bytes(c.kv_type);
  k_at_ = pool(blocks_, rows_, c.head_dim, c.order, 8);
  v_at_ = pool(blocks_, rows_, c.v_dim(),
               c.order == Order::kTokenMajor ? Order::kHeadMajor : Order::kTokenMajor, 16);
  if (c.order == Order::kInterleaved) {
    // A page holds three layers, each K then V; ours is the middle one.
    const Index part = rows_ * c.kv_heads * (std::max(c.head_dim, c.v_dim()));
    k_at_ = pool(blocks_, rows_, part / rows_ / c.kv_heads, Order::kTokenMajor, 0);
    k_at_.batch = 6 * part;
    k_at_.origin = 2 * part;
    k_at_.extent = blocks_ * 6 * part;
    v_at_ = k_at_;
    v_at_.origin = 3 * part;
    v_at_.extent = 0;
  }
  k_ = Block(k_at_.extent * bytes, 16, c.garbage);
  v_ = Block(v_at_.extent * bytes, 16, c.garbage);
  std::uint8_t* v_base = c.order == Order::kInterleaved ? k_.data() : v_.data();
  args_.k = k_.data() + k_at_.origin * bytes;
  args_.v = v_base + v_at_.origin * bytes;
  args_.k_batch_stride = k_at_.batch;
  args_.k_token_stride = k_at_.token;
  args_.k_head_stride = k_at_.head;
  args_.v_batch_stride = v_at_.batch;
  args_.v_token_stride = v_at_.token;
  args_.v_head_stride = v_at_.head;
}

Cache::Place Cache::place(Index r, Index j) const {
  const Case& c = p_.c();
  if (c.storage == Storage::kContiguous) return {r, j};
  if (c.storage == Storage::kPacked) return {0, kPackedOrigin + p_.first_key(r) + j};
  if (!p_.has_slot(r, j)) return {-1, 0};
  return {at(page_of_, at(first_slot_, r) + j / c.page_size - p_.released_pages(r)),
          j % c.page_size};
}

void Cache::write_row(Index r, Index j, Index h, void* k_pool, void* v_pool) const {
  const Case& c = p_.c();
  const Place to = place(r, j);
  const Index key = p_.first_key(r) + j;
  for (Index d = 0; d < c.head_dim; ++d)
    store(k_pool, c.kv_type, k_at_.of(to.block, to.row, h) + d,
          static_cast<double>(p_.k(key, h)[d]));
  for (Index d = 0; d < c.v_dim(); ++d)
    store(v_pool, c.kv_type, v_at_.of(to.block, to.row, h) + d,
          static_cast<double>(p_.v(key, h)[d]));
}

void Cache::write_rows() {
  const Case& c = p_.c();
  void* v_pool = c.order == Order::kInterleaved ? k_.data() : v_.data();
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index j = 0; j < p_.kv_len(r); ++j) {
      const bool data = p_.seen_by_any_row(r, j) && !p_.appended(r, j) && p_.has_slot(r, j);
      for (Index h = 0; data && h < c.kv_heads; ++h) write_row(r, j, h, k_.data(), v_pool);
    }
  }
  k_image_.assign(k_.data(), k_.data() + k_.bytes());
  v_image_.assign(v_.data(), v_.data() + v_.bytes());
}

std::string Cache::check_and_restore() {
  const Case& c = p_.c();
  if (!k_.guards_intact() || !v_.guards_intact()) return "wrote outside the cache";
  std::vector<std::uint8_t> k = k_image_, v = v_image_;
  for (Index r = 0; c.append != Append::kNone && r < c.batch(); ++r) {
    for (Index j = p_.kv_len(r) - p_.q_len(r); j < p_.kv_len(r); ++j) {
      for (Index h = 0; p_.has_slot(r, j) && h < c.kv_heads; ++h)
        write_row(r, j, h, k.data(), c.order == Order::kInterleaved ? k.data() : v.data());
    }
  }
  const bool same =
      std::equal(k.begin(), k.end(), k_.data()) && std::equal(v.begin(), v.end(), v_.data());
  std::copy(k_image_.begin(), k_image_.end(), k_.data());
  std::copy(v_image_.begin(), v_image_.end(), v_.data());
  return same ? "" : "the cache is not as it was plus the appended rows";
}

void Cache::make_lengths() {
  const Case& c = p_.c();
  const bool packed = c.storage == Storage::kPacked;
  const Index origin = packed ? kPackedOrigin : c.slack ? 5 : 0;
  indptr_.push_back(static_cast<std::int32_t>(origin));
  for (Index r = 0; r < c.batch(); ++r) {
    lens_.push_back(static_cast<std::int32_t>(p_.kv_len(r)));
    indptr_.push_back(indptr_.back() + lens_.back());
    first_page_.push_back(static_cast<std::int32_t>(p_.released_pages(r)));
    // A request without pages has no last page: the entry must not be read.
    last_.push_back(static_cast<std::int32_t>(
        pages_of(p_, r) > 0 ? (p_.kv_len(r) - 1) % c.page_size + 1 : -77));
  }
  if (c.lengths == Lengths::kScalar) args_.kv_len = lens_.empty() ? 0 : lens_.front();
  if (c.lengths == Lengths::kArray) args_.kv_lens = lens_.data();
  if (c.lengths == Lengths::kIndptr) args_.kv_indptr = indptr_.data();
  if (c.lengths == Lengths::kLastPage) args_.last_page_len = last_.data();
  if (!c.paged()) args_.kv_capacity = rows_;
}

// Entries past the need: holes, ids outside the pool, and pages that hold NaN only.
void Cache::add_spare_entries(Index count) {
  const Index garbage[] = {-1, blocks_, INT32_MAX, page_of_.back(), INT32_MIN, -1};
  for (Index n = 0; n < count; ++n) table_.push_back(static_cast<std::int32_t>(garbage[n % 6]));
}

void Cache::make_table() {
  const Case& c = p_.c();
  args_.page_size = static_cast<std::int32_t>(c.page_size);
  args_.num_pages = blocks_;
  if (c.released) args_.first_page = first_page_.data();
  const bool csr = c.storage == Storage::kCsr;
  for (Index r = 0; r < c.batch(); ++r) width_ = std::max(width_, pages_of(p_, r) + 1);
  const Index stride = width_ + 3;  // of a row of the block form
  if (csr) add_spare_entries(kCsrOrigin);
  // The block form keeps request r in row batch - r, so that row 0 is nobody's.
  if (!csr) add_spare_entries(stride * (c.batch() + 1));
  page_indptr_.push_back(kCsrOrigin);
  for (Index r = 0; r < c.batch(); ++r) {
    page_rows_.push_back(static_cast<std::int32_t>(c.batch() - r));
    for (Index n = 0; n < pages_of(p_, r); ++n) {
      const bool hole = p_.page_is_hole(r, n + p_.released_pages(r));
      const auto id = static_cast<std::int32_t>(hole ? -1 : at(page_of_, at(first_slot_, r) + n));
      if (csr) table_.push_back(id);
      if (!csr) at(table_, (c.batch() - r) * stride + n) = id;
    }
    if (csr && c.lengths != Lengths::kLastPage) add_spare_entries(r % 3);
    page_indptr_.push_back(static_cast<std::int32_t>(table_.size()));
  }
  args_.page_table = table_.data();
  if (csr) {
    args_.page_indptr = page_indptr_.data();
    args_.page_indices_len = static_cast<Index>(table_.size());
  } else {
    args_.page_table_width = static_cast<std::int32_t>(width_);
    args_.page_row_stride = stride;
    args_.page_table_rows = c.batch() + 1;
    args_.page_rows = page_rows_.data();
  }
}

}  // namespace tilewise::verify
