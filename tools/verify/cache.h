// A hostile K/V cache for a problem: pages in permuted order, NaN in every slot that no row can
// see, garbage in table entries that no one needs.
#pragma once

#include "verify/block.h"
#include "verify/problem.h"

namespace tilewise::verify {

class Cache {
 public:
  explicit Cache(const Problem& p);

  const tw_kv_cache& args() const { return args_; }
  const Block& k_memory() const { return k_; }
  const Block& v_memory() const { return v_; }
  // After a call: every appended row stands in its slot as converted, and no other byte changed.
  // Puts the bytes back as they were. Returns what is wrong, empty if nothing.
  std::string check_and_restore();

 private:
  struct Place {
    Index block, row;  // block -1: no slot
  };
  Place place(Index r, Index j) const;
  void lay_out();
  Strides pool(Index blocks, Index rows, Index dim, Order order, Index pad) const;
  void write_rows();
  void write_row(Index r, Index j, Index h, void* k_pool, void* v_pool) const;
  void make_lengths();
  void make_table();
  void add_spare_entries(Index count);

  const Problem& p_;
  Index blocks_ = 0, rows_ = 0, width_ = 0;
  Block k_, v_;  // interleaved: both in k_
  std::vector<std::uint8_t> k_image_, v_image_;
  Strides k_at_, v_at_;
  std::vector<Index> page_of_;     // slot order: physical page of the n-th page in use
  std::vector<Index> first_slot_;  // of request r in page_of_
  std::vector<std::int32_t> lens_, indptr_, last_, table_, page_rows_, page_indptr_, first_page_;
  tw_kv_cache args_{};
};

}  // namespace tilewise::verify
