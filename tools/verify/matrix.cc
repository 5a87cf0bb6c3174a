// The sweeps that make up the matrix, and random cases.
#include "verify/matrix.h"

#include <cstdio>
#include <cstring>

#include "verify/numbers.h"

namespace tilewise::verify {
namespace {

constexpr tw_dtype kTypes[] = {TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32};

// Collects cases; what a sweep leaves open varies from case to case, so that sweeps do not all
// stand on one default.
class Sweep {
 public:
  void add(Case c) {
    char id[16];
    std::snprintf(id, sizeof id, "m%04d", static_cast<int>(cases_.size()));
    c.id = id;
    c.seed = cases_.size() + 1;
    settle(c);
    cases_.push_back(std::move(c));
  }
  void add_typed(Case c) {
    const tw_dtype type = kTypes[cases_.size() % 3];
    c.q_type = c.kv_type = type;
    add(std::move(c));
  }
  void add_placed(Case c) {
    constexpr Storage places[] = {Storage::kContiguous, Storage::kCsr, Storage::kBlockTable,
                                  Storage::kPacked};
    c.storage = places[cases_.size() / 3 % 4];
    add_typed(std::move(c));
  }
  std::vector<Case> take() { return std::move(cases_); }

 private:
  std::vector<Case> cases_;
};

bool paged(const Feature& f) { return std::strcmp(f.axis, "pages") == 0; }

// Holes, releases and interleaved pools need pages: tried without a storage feature they stand on a
// block table.
Case with(const Case& base, const Feature& feature) {
  Case c = base;
  if (paged(feature) || std::strcmp(feature.name, "interleaved") == 0) {
    if (c.storage == Storage::kContiguous) c.storage = Storage::kBlockTable;
  }
  feature.apply(c);
  return c;
}

void single_features(Sweep& sweep) {
  for (const Case& base : base_cases()) {
    sweep.add(base);
    for (const Feature& feature : features()) {
      const bool typed = std::strcmp(feature.axis, "types") == 0;
      for (const tw_dtype type : kTypes) {
        if (typed && type != TW_DTYPE_FP32) continue;
        Case c = base;
        c.q_type = c.kv_type = type;
        sweep.add(with(c, feature));
      }
    }
  }
}

void feature_pairs(Sweep& sweep) {
  const std::vector<Case> bases = base_cases();
  std::size_t turn = 0;
  for (std::size_t a = 0; a < features().size(); ++a) {
    for (std::size_t b = a + 1; b < features().size(); ++b) {
      if (std::strcmp(features()[a].axis, features()[b].axis) == 0) continue;
      for (int copy = 0; copy < 2; ++copy) {
        Case c = bases[turn++ % bases.size()];
        c.q_type = c.kv_type = kTypes[turn / 4 % 3];
        // The storage feature goes first, so that a paged feature keeps it.
        sweep.add(with(with(c, features()[a]), features()[b]));
      }
    }
  }
}

void types(Sweep& sweep) {
  for (const tw_dtype q : kTypes) {
    for (const tw_dtype kv : kTypes) {
      for (const tw_dtype o : {TW_DTYPE_DEFAULT, TW_DTYPE_FP32}) {
        for (Case c : base_cases()) {
          c.q_type = q, c.kv_type = kv, c.o_type = o;
          c.causal = true;
          sweep.add(c);
          c.storage = Storage::kCsr;
          c.append = Append::kConverted;
          sweep.add(c);
        }
      }
    }
  }
}

void head_dims(Sweep& sweep) {
  for (Index dim = 8; dim <= 512; dim += 8) {
    Case c;
    c.head_dim = dim;
    c.causal = true;
    c.requests = {{1, 67}, {19, 70}};
    c.ragged = true;
    sweep.add_placed(c);
    c.v_head_dim = 520 - dim;
    c.requests = {{2, 130}, {17, 33}};
    sweep.add_placed(c);
  }
}

void groups(Sweep& sweep) {
  for (const Index group : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 71, 128}) {
    for (const Index kv_heads : {1, 3}) {
      for (const Index q_len : {1, 3, 18}) {
        Case c;
        c.q_heads = group * kv_heads;
        c.kv_heads = kv_heads;
        c.head_dim = 32;
        c.causal = true;
        c.sinks = true;
        c.requests = {{q_len, 75}};
        sweep.add_placed(c);
      }
    }
  }
}

void lengths(Sweep& sweep) {
  constexpr Index rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64, 65, 130};
  constexpr Index keys[] = {0, 1, 2, 31, 63, 64, 65, 67, 127, 128, 129, 509};
  bool causal = false;
  for (const Index q_len : rows) {
    for (const Index kv_len : keys) {
      Case c;
      c.q_heads = 2, c.kv_heads = 1, c.head_dim = 32;
      c.causal = causal = !causal;
      c.requests = {{q_len, kv_len}};
      sweep.add_placed(c);
    }
  }
  for (const Index kv_len : {1021, 2053, 4096, 4097}) {
    for (const Index q_len : {1, 2, 4, 17}) {
      for (const Index left : {kOff, Index{1000}}) {
        Case c;
        c.q_heads = 2, c.kv_heads = 1;
        c.causal = true;
        c.window_left = left;
        c.requests = {{q_len, kv_len}};
        sweep.add_placed(c);
      }
    }
  }
}

void pages(Sweep& sweep) {
  for (const Index size :
       {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 48, 63, 64, 65, 100, 128, 256}) {
    for (const Storage storage : {Storage::kCsr, Storage::kBlockTable}) {
      for (Case c : base_cases()) {
        c.storage = storage;
        c.page_size = size;
        c.causal = true;
        c.order = size % 2 != 0 ? Order::kHeadMajor : Order::kTokenMajor;
        sweep.add_typed(c);
      }
    }
  }
}

void drawn(Sweep& sweep, Index count) {
  for (Index n = 0; n < count; ++n) sweep.add(random_case(2024, n));
}

}  // namespace

const std::vector<Case>& matrix() {
  static const std::vector<Case> cases = [] {
    Sweep sweep;
    single_features(sweep);
    feature_pairs(sweep);
    types(sweep);
    head_dims(sweep);
    groups(sweep);
    lengths(sweep);
    pages(sweep);
    drawn(sweep, 300);
    return sweep.take();
  }();
  return cases;
}

Case random_case(std::uint64_t seed, Index n) {
  const Stream stream(seed + 977 * static_cast<std::uint64_t>(n), 14);
  Index drawn = 0;
  const auto below = [&](Index limit) {
    return static_cast<Index>(stream.word(++drawn) % static_cast<std::uint64_t>(limit));
  };
  Case c;
  c.id = "r" + std::to_string(n);
  c.seed = seed + static_cast<std::uint64_t>(n);
  c.q_type = kTypes[below(3)];
  c.kv_type = below(3) != 0 ? c.q_type : kTypes[below(3)];
  c.kv_heads = 1 + below(3);
  c.q_heads = c.kv_heads * (1 + below(5));
  c.head_dim = 8 * (1 + below(18));
  c.ragged = below(2) != 0;
  c.requests.clear();
  const Index batch = 1 + below(4);
  for (Index r = 0; r < batch; ++r)
    c.requests.push_back(
        {below(3) != 0 ? 1 + below(6) : below(40), below(below(3) != 0 ? 80 : 300)});
  // Each axis keeps its default half of the time.
  for (const Feature& feature : features()) {
    if (std::strcmp(feature.axis, "types") != 0 && below(8) == 0) feature.apply(c);
  }
  if (c.storage == Storage::kBlockTable || c.storage == Storage::kCsr) c.page_size = 1 + below(40);
  settle(c);
  return c;
}

}  // namespace tilewise::verify
