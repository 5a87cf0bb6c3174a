// Data and calls of the small operations' unit tests: arrays of any element type in a sea of
// sentinel bytes, the seed rule that all test data follows, and caches that remember which rows
// should have changed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/ops.h"
#include "core/types.h"
#include "cpu/backend.h"
#include "cpu/parallel.h"

namespace tilewise::testing {

// Instances of parameterised suites are called by their type.
inline std::string type_of(const ::testing::TestParamInfo<core::DType>& test) {
  return core::name_of(test.param);
}

constexpr core::DType kAllTypes[] = {core::DType::kBf16, core::DType::kFp16, core::DType::kFp32};

// Word `i` (from 1) of the stream of (seed, tensor); unit variance normals of three words each.
inline std::uint64_t scramble(std::uint64_t z) {
  z ^= z >> 30;
  z *= 0xBF58476D1CE4E5B9u;
  z ^= z >> 27;
  z *= 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

inline double uniform(std::uint64_t seed, std::uint64_t tensor, std::uint64_t i) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15u;
  const std::uint64_t word = scramble(scramble(seed * kStep + tensor) + i * kStep);
  return static_cast<double>(word >> 40) * 0x1p-23 - 1.0;
}

inline float normal(std::uint64_t seed, std::uint64_t tensor, std::int64_t element) {
  const auto e = 3 * static_cast<std::uint64_t>(element);
  return static_cast<float>(uniform(seed, tensor, e + 1) + uniform(seed, tensor, e + 2) +
                            uniform(seed, tensor, e + 3));
}

// `count` elements of `type`, every byte a sentinel (a NaN in each type), with a guard on each
// side.
class Elements {
 public:
  Elements(core::DType type, std::int64_t count) : type_(type), count_(count) {
    bytes_.assign(static_cast<std::size_t>(2 * kGuard + count * core::size_of(type)), kSentinel);
  }

  core::DType type() const { return type_; }
  std::int64_t count() const { return count_; }
  void* data() { return bytes_.data() + kGuard; }
  const void* data() const { return bytes_.data() + kGuard; }

  float operator[](std::int64_t i) const { return core::load_element(data(), type_, i); }
  void set(std::int64_t i, float x) { core::store_element(data(), type_, i, x); }
  void fill(float x) {
    for (std::int64_t i = 0; i < count_; ++i) set(i, x);
  }
  Elements& fill_normal(std::uint64_t seed, std::uint64_t tensor, float factor = 1.0f) {
    for (std::int64_t i = 0; i < count_; ++i) set(i, factor * normal(seed, tensor, i));
    return *this;
  }
  void clear() { std::fill(bytes_.begin(), bytes_.end(), kSentinel); }

  bool untouched(std::int64_t i) const {
    const std::uint8_t* at = bytes_.data() + kGuard + i * core::size_of(type_);
    for (int b = 0; b < core::size_of(type_); ++b) {
      if (at[b] != kSentinel) return false;
    }
    return true;
  }
  bool untouched(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin; i < end; ++i) {
      if (!untouched(i)) return false;
    }
    return true;
  }
  bool guards_intact() const {
    const Elements fresh(type_, count_);
    return std::memcmp(bytes_.data(), fresh.bytes_.data(), kGuard) == 0 &&
           std::memcmp(bytes_.data() + bytes_.size() - kGuard, fresh.bytes_.data(), kGuard) == 0;
  }
  bool operator==(const Elements& other) const { return bytes_ == other.bytes_; }
  bool operator!=(const Elements& other) const { return bytes_ != other.bytes_; }

 private:
  static constexpr std::int64_t kGuard = 64;
  static constexpr std::uint8_t kSentinel = 0xFF;
  core::DType type_;
  std::int64_t count_;
  std::vector<std::uint8_t> bytes_;
};

inline cpu::Parallel threads(std::int32_t count) {
  return cpu::make_parallel(nullptr, nullptr, count);
}

inline core::TokenRows dense_rows(std::int32_t batch, std::int64_t q_len) {
  return {batch, q_len, batch * q_len, q_len, nullptr};
}

inline core::TokenRows ragged_rows(const std::vector<std::int32_t>& indptr, std::int64_t total) {
  return {static_cast<std::int32_t>(indptr.size()) - 1, 0, total, total, indptr.data()};
}

inline core::RowStrides plain_strides(std::int64_t q_len, std::int64_t heads, std::int64_t dim) {
  return {q_len * heads * dim, heads * dim, dim};
}

// Cosines and sines of angles position * theta^(-2d / rotary_dim), rounded to the table's type.
struct Angles {
  Angles(core::DType type, std::int64_t rows, std::int32_t rotary_dim, double theta = 10000.0,
         std::int64_t element_stride = 1)
      : cosine(type, rows * rotary_dim / 2 * element_stride),
        sine(type, rows * rotary_dim / 2 * element_stride),
        table{cosine.data(),  sine.data(),
              type,           rotary_dim / 2 * element_stride,
              element_stride, rotary_dim / 2 * element_stride,
              element_stride, rows,
              rotary_dim,     core::PairStyle::kHalves} {
    for (std::int64_t p = 0; p < rows; ++p) {
      for (std::int64_t d = 0; d < rotary_dim / 2; ++d) {
        const double angle =
            static_cast<double>(p) *
            std::pow(theta, -2.0 * static_cast<double>(d) / static_cast<double>(rotary_dim));
        const std::int64_t at = (p * (rotary_dim / 2) + d) * element_stride;
        cosine.set(at, static_cast<float>(std::cos(angle)));
        sine.set(at, static_cast<float>(std::sin(angle)));
      }
    }
  }
  Angles(const Angles&) = delete;
  Angles& operator=(const Angles&) = delete;
  Elements cosine, sine;
  core::RopeTable table;
};

// A cache of sentinels for `heads` heads of K and V. Rows: [block][row][head][dim], or head before
// row (HND).
struct Cache {
  Cache(core::DType type, std::int64_t blocks_, std::int64_t rows_, std::int64_t heads_,
        std::int64_t k_dim, std::int64_t v_dim, bool heads_first = false)
      : blocks(blocks_),
        rows(rows_),
        heads(heads_),
        k(type, blocks_ * rows_ * heads_ * k_dim),
        v(type, blocks_ * rows_ * heads_ * v_dim) {
    const auto strides = [&](std::int64_t dim) {
      return heads_first ? core::KvStrides{rows * heads * dim, dim, rows * dim}
                         : core::KvStrides{rows * heads * dim, heads * dim, dim};
    };
    kv.k = k.data();
    kv.v = v.data();
    kv.k_stride = strides(k_dim);
    kv.v_stride = strides(v_dim);
    dims[0] = k_dim;
    dims[1] = v_dim;
    kv.max_kv_len = INT32_MAX;
  }

  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  void use_contiguous(const std::vector<std::int32_t>& lens) {
    lengths = lens;
    kv.layout = core::KvLayout::kContiguous;
    kv.lengths = core::KvLengths::kPerRequest;
    kv.kv_lens = lengths.data();
    kv.capacity = kv.max_kv_len = rows;
  }
  void use_packed(const std::vector<std::int32_t>& indptr) {
    lengths = indptr;
    kv.layout = core::KvLayout::kPacked;
    kv.lengths = core::KvLengths::kIndptr;
    kv.kv_indptr = lengths.data();
    kv.capacity = rows;
  }
  // Block table of `width` entries a request.
  void use_pages(const std::vector<std::int32_t>& lens, const std::vector<std::int32_t>& entries,
                 std::int32_t width) {
    use_contiguous(lens);
    table = entries;
    kv.layout = core::KvLayout::kPaged;
    kv.page_size = static_cast<std::int32_t>(rows);
    kv.max_kv_len = INT32_MAX;
    kv.page_table = table.data();
    kv.table_width = width;
    kv.page_row_stride = width;
    kv.page_table_rows = static_cast<std::int64_t>(lens.size());
    kv.num_pages = blocks;
  }
  void use_slots() {
    kv.layout = blocks > 1 ? core::KvLayout::kPaged : core::KvLayout::kPacked;
    kv.page_size = static_cast<std::int32_t>(rows);
    kv.num_pages = blocks;
    kv.capacity = rows;
    kv.max_kv_len = 0;
  }

  float k_at(std::int64_t block, std::int64_t row, std::int64_t head, std::int64_t d) const {
    return k[core::k_offset(kv, {block, row}, head) + d];
  }
  float v_at(std::int64_t block, std::int64_t row, std::int64_t head, std::int64_t d) const {
    return v[core::v_offset(kv, {block, row}, head) + d];
  }
  // Whether every element of a row was written, or none was.
  bool written(std::int64_t block, std::int64_t row) const {
    return holds(block, row, [](bool clean) { return !clean; });
  }
  bool untouched(std::int64_t block, std::int64_t row) const {
    return holds(block, row, [](bool clean) { return clean; });
  }
  // Rows that are not wholly sentinel.
  std::int64_t touched_rows() const {
    std::int64_t n = 0;
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t r = 0; r < rows; ++r) n += untouched(b, r) ? 0 : 1;
    }
    return n;
  }

  std::int64_t blocks, rows, heads;
  std::int64_t dims[2];
  Elements k, v;
  core::KvCache kv{};
  std::vector<std::int32_t> lengths, table;

 private:
  template <class Wanted>
  bool holds(std::int64_t block, std::int64_t row, Wanted&& wanted) const {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t k0 = core::k_offset(kv, {block, row}, h);
      const std::int64_t v0 = core::v_offset(kv, {block, row}, h);
      for (std::int64_t d = 0; d < dims[0]; ++d) {
        if (!wanted(k.untouched(k0 + d))) return false;
      }
      for (std::int64_t d = 0; d < dims[1]; ++d) {
        if (!wanted(v.untouched(v0 + d))) return false;
      }
    }
    return true;
  }
};

inline bool same_fault(const cpu::FaultRecord& a, const cpu::FaultRecord& b) {
  return a.code == b.code && a.what == b.what && a.request == b.request && a.row == b.row &&
         a.value == b.value;
}

inline cpu::FaultRecord fault(core::FaultCode code, core::FaultWhat what, std::int32_t request,
                              std::int32_t row, std::int64_t value) {
  return {static_cast<std::int32_t>(code), static_cast<std::int32_t>(what), request, row, value};
}

}  // namespace tilewise::testing
