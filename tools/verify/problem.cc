// Drawing a problem's numbers, and the visibility rule restated from the header's text.
#include "verify/problem.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tilewise::verify {

Problem::Problem(Case c) : case_(std::move(c)) {
  settle(case_);
  place_requests();
  place_slots();
  draw_positions();
  draw_heads();
  settle_seen();
  fill_values();
}

void Problem::place_requests() {
  first_row_ = {0};
  first_key_ = {0};
  for (const Request& r : case_.requests) {
    first_row_.push_back(first_row_.back() + r.q_len);
    first_key_.push_back(first_key_.back() + r.kv_len);
  }
}

bool Problem::page_is_hole(Index r, Index page) const {
  return case_.holes && Stream(data_seed(r), kHoles).word(page + 1) % 4 == 0;
}

void Problem::place_slots() {
  slot_.assign(static_cast<std::size_t>(keys()), 1);
  for (Index r = 0; r < case_.batch(); ++r) {
    const Index spare = case_.append != Append::kNone ? kv_len(r) - q_len(r) : kv_len(r);
    released_.push_back(case_.released ? std::min<Index>(spare / case_.page_size, 2) : 0);
    for (Index j = 0; case_.paged() && j < kv_len(r); ++j) {
      const Index page = j / case_.page_size;
      at(slot_, first_key(r) + j) = page >= released_.back() && !page_is_hole(r, page);
    }
  }
}

Index Problem::tree_parent(Index r, Index i) const {
  return i == 0 ? -1
                : static_cast<Index>(Stream(data_seed(r), kTree).word(i) %
                                     static_cast<std::uint64_t>(i));
}

// Where rows stand: bottom-right, a stated start, or the depth in a tree of drafted tokens.
void Problem::draw_positions() {
  for (Index r = 0; r < case_.batch(); ++r) {
    Index start = kv_len(r) - q_len(r);
    if (case_.positions == Positions::kStart && case_.append == Append::kNone)
      start += case_.tag_of(r) % 2 != 0 ? 3 : -2;
    std::vector<Index> depth;
    for (Index i = 0; i < q_len(r); ++i) {
      const Index parent = tree_parent(r, i);
      depth.push_back(parent < 0 ? 0 : at(depth, parent) + 1);
      positions_.push_back(start + (case_.positions == Positions::kTree ? depth.back() : i));
    }
  }
}

void Problem::draw_heads() {
  if (case_.alibi != Alibi::kNone) {
    for (Index r = 0; r < slope_rows(); ++r) {
      const Stream stream(slope_rows() > 1 ? data_seed(r) : case_.seed, kSlopes);
      for (Index h = 0; h < case_.q_heads; ++h) {
        slopes.push_back(static_cast<float>(
            std::ldexp(1.5 + stream.uniform(h + 1) / 2, -1 - static_cast<int>(h % 8))));
      }
    }
  }
  for (Index h = 0; case_.sinks && h < case_.q_heads; ++h) {
    const double sink = 2 * Stream(case_.seed, kSinks).normal(h);
    sinks.push_back(h == 1 ? -HUGE_VALF
                           : static_cast<float>(sink));  // one head: a sink that is none
  }
}

Index Problem::mask_first_key(Index r) const {
  if (case_.mask == MaskKind::kTree) return kv_len(r) - q_len(r);
  return case_.mask == MaskKind::kRagged ? kv_len(r) / 3 : 0;
}

bool Problem::mask_keeps(Index r, Index h, Index i, Index j) const {
  if (case_.mask == MaskKind::kNone) return true;
  if (keep) return keep(r, h, i, j);
  const Index column = j - mask_first_key(r);
  if (column < 0) return true;
  if (case_.mask == MaskKind::kTree) {
    Index ancestor = i;
    while (ancestor > column) ancestor = tree_parent(r, ancestor);
    return ancestor == column;
  }
  if (i % 5 == 1) return false;
  const bool own = case_.mask != MaskKind::kShared;
  if (own && case_.tag_of(r) % 2 != 0 && j < 27) return false;  // left padding
  const Index head = case_.mask == MaskKind::kPerHead || case_.mask == MaskKind::kRagged ? h : 0;
  return Stream(own ? data_seed(r) : case_.seed, kMask)
                 .word(((head + 1) << 40) + (i << 20) + column) %
             4 !=
         0;
}

bool Problem::rule_sees(Index r, Index i, Index j) const {
  const Index pos = position(r, i);
  if (case_.causal && j > pos) return false;
  if (case_.window_left != kOff && j < pos - case_.window_left) return false;
  if (case_.window_right != kOff && j > pos + case_.window_right) return false;
  return present(r, j);
}

bool Problem::sees(Index r, Index i, Index h, Index j) const {
  return rule_sees(r, i, j) && mask_keeps(r, h, i, j);
}

void Problem::settle_seen() {
  seen_.assign(static_cast<std::size_t>(keys()), 0);
  const bool by_head =
      keep != nullptr || case_.mask == MaskKind::kPerHead || case_.mask == MaskKind::kRagged;
  for (Index r = 0; r < case_.batch(); ++r) {
    for (Index j = 0; j < kv_len(r); ++j) {
      std::uint8_t& seen = at(seen_, first_key(r) + j);
      for (Index i = 0; i < q_len(r) && seen == 0; ++i) {
        if (!rule_sees(r, i, j)) continue;
        for (Index h = 0; h < (by_head ? case_.q_heads : 1) && seen == 0; ++h)
          seen = mask_keeps(r, h, i, j);
      }
    }
  }
}

void Problem::set_q(const Filler& fill) {
  q_.clear();
  for (Index r = 0; r < case_.batch(); ++r) {
    for (Index e = 0; e < q_len(r) * case_.q_heads * case_.head_dim; ++e) {
      const Index row = e / case_.head_dim;
      const double value = fill(r, row / case_.q_heads, row % case_.q_heads, e % case_.head_dim);
      q_.push_back(static_cast<float>(round_to(case_.q_type, value)));
    }
  }
}

namespace {

// Keys of a cache whose rows have `dim` elements: as they come, and as the cache stores them.
void fill_keys(const Problem& p, Index dim, const Problem::Filler& fill, std::vector<float>* given,
               std::vector<float>* stored) {
  const Case& c = p.c();
  given->clear();
  stored->clear();
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index e = 0; e < p.kv_len(r) * c.kv_heads * dim; ++e) {
      const Index row = e / dim;
      const double drawn = fill(r, row / c.kv_heads, row % c.kv_heads, e % dim);
      const double value =
          p.appended(r, row / c.kv_heads) ? round_to(c.append_type(), drawn) : drawn;
      given->push_back(static_cast<float>(value));
      stored->push_back(static_cast<float>(round_to(c.kv_type, value)));
    }
  }
}

}  // namespace

void Problem::set_k(const Filler& fill) { fill_keys(*this, case_.head_dim, fill, &new_k_, &k_); }
void Problem::set_v(const Filler& fill) { fill_keys(*this, case_.v_dim(), fill, &new_v_, &v_); }

void Problem::fill_values() {
  const bool census = case_.fill == Fill::kCensus;
  const auto drawn = [&](TensorId id, Index heads, Index dim) {
    return [this, id, heads, dim](Index r, Index row, Index h, Index d) {
      return Stream(data_seed(r), id).normal((row * heads + h) * dim + d);
    };
  };
  const auto zero = [](Index, Index, Index, Index) { return 0.0; };
  const auto one_hot = [this](Index, Index j, Index, Index d) {
    return j % case_.v_dim() == d ? 1.0 : 0.0;
  };
  set_q(census ? Filler(zero) : Filler(drawn(kQ, case_.q_heads, case_.head_dim)));
  set_k(drawn(kK, case_.kv_heads, case_.head_dim));
  set_v(census ? Filler(one_hot) : Filler(drawn(kV, case_.kv_heads, case_.v_dim())));
}

float Problem::scale() const {
  return case_.scale != 0 ? case_.scale
                          : static_cast<float>(1 / std::sqrt(static_cast<double>(case_.head_dim)));
}

double Problem::largest_v() const {
  double largest = 0;
  for (const float v : v_) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  return largest;
}

}  // namespace tilewise::verify
