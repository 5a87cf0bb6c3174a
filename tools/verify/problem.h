// The logical content of a case: query, key and value rows as numbers, which keys are there, which
// a row sees. Says nothing about memory; `Buffers` lays it out, `emulate` computes from it.
#pragma once

#include <functional>

#include "verify/numbers.h"

namespace tilewise::verify {

class Problem {
 public:
  // Settles the case and fills every tensor from its seed. Values are rounded to their storage
  // types.
  explicit Problem(Case c);

  const Case& c() const { return case_; }
  Index rows() const { return first_row_.back(); }
  Index keys() const { return first_key_.back(); }
  Index first_row(Index r) const { return at(first_row_, r); }
  Index first_key(Index r) const { return at(first_key_, r); }
  Index q_len(Index r) const { return at(case_.requests, r).q_len; }
  Index kv_len(Index r) const { return at(case_.requests, r).kv_len; }

  // Row of a head: head_dim (v: v_dim) numbers.
  const float* q(Index row, Index head) const {
    return &at(q_, (row * case_.q_heads + head) * case_.head_dim);
  }
  const float* k(Index key, Index head) const {
    return &at(k_, (key * case_.kv_heads + head) * case_.head_dim);
  }
  const float* v(Index key, Index head) const {
    return &at(v_, (key * case_.kv_heads + head) * case_.v_dim());
  }
  // What an append brings for a key, before it is converted to the cache's type.
  const float* new_k(Index key, Index head) const {
    return &at(new_k_, (key * case_.kv_heads + head) * case_.head_dim);
  }
  const float* new_v(Index key, Index head) const {
    return &at(new_v_, (key * case_.kv_heads + head) * case_.v_dim());
  }
  // Replace the values: fill(request, row or key of it, head, element).
  using Filler = std::function<double(Index, Index, Index, Index)>;
  void set_q(const Filler& fill);
  void set_k(const Filler& fill);
  void set_v(const Filler& fill);

  // Appended rows of request r are its last q_len keys.
  bool appended(Index r, Index j) const {
    return case_.append != Append::kNone && j >= kv_len(r) - q_len(r);
  }
  bool has_slot(Index r, Index j) const { return at(slot_, first_key(r) + j) != 0; }
  bool present(Index r, Index j) const { return has_slot(r, j) || appended(r, j); }
  bool seen_by_any_row(Index r, Index j) const { return at(seen_, first_key(r) + j) != 0; }
  Index position(Index r, Index i) const { return at(positions_, first_row(r) + i); }
  bool mask_keeps(Index r, Index h, Index i, Index j) const;
  bool sees(Index r, Index i, Index h, Index j) const;
  float slope(Index r, Index h) const {
    return at(slopes, slope_rows() > 1 ? r * case_.q_heads + h : h);
  }
  Index slope_rows() const { return case_.alibi == Alibi::kPerRequest ? case_.batch() : 1; }
  Index released_pages(Index r) const { return at(released_, r); }
  bool page_is_hole(Index r, Index page) const;
  // First key of a tree or ragged mask, 0 for the others.
  Index mask_first_key(Index r) const;
  float scale() const;
  double largest_v() const;

  std::vector<float> slopes;  // empty: none
  std::vector<float> sinks;   // empty: none
  // A custom mask in place of the case's own bytes: keep(request, head, row, key).
  std::function<bool(Index, Index, Index, Index)> keep;

  // After changing `keep`, sinks or slots by hand: which keys are seen, and so which slots hold
  // data.
  void settle_seen();

 private:
  std::uint64_t data_seed(Index r) const {
    return case_.seed + 0x10001u * static_cast<std::uint64_t>(case_.tag_of(r));
  }
  void place_requests();
  void place_slots();
  void draw_positions();
  void draw_heads();
  void fill_values();
  Index tree_parent(Index r, Index i) const;
  bool rule_sees(Index r, Index i, Index j) const;

  Case case_;
  std::vector<Index> first_row_, first_key_, positions_, released_;
  std::vector<float> q_, k_, v_, new_k_, new_v_;
  std::vector<std::uint8_t> slot_, seen_;
};

}  // namespace tilewise::verify
