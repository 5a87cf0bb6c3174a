// What a call may be made of, as far as its bounds tell: shared by the planners of all backends.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/attention.h"
#include "core/rows.h"

namespace tilewise::plan {

// a * b for counts, capped far above any budget.
inline std::int64_t product(std::int64_t a, std::int64_t b) {
  constexpr std::int64_t kCap = std::int64_t{1} << 48;
  std::int64_t result;
  return __builtin_mul_overflow(a, b, &result) || result > kCap ? kCap : result;
}

// What a call may be made of, from its bounds.
struct Shape {
  bool prefill, decode;                    // classes that may occur
  std::int64_t prefill_rows, decode_rows;  // q rows of a request of each class
  std::int64_t all_prefill, all_decode;    // packed rows in all, of all KV heads
};

inline Shape shape_of(const core::Attention& a) {
  Shape s{};
  const bool ragged = a.q_indptr != nullptr;
  const std::int64_t most = ragged ? std::min(a.max_q_len, a.total_q) : a.q_len;
  const core::RowClass top = core::row_class(most, a.forced_class);
  s.prefill = most > 0 && top == core::RowClass::kPrefill;
  s.decode = most > 0 && (top == core::RowClass::kDecode ||
                          (ragged && a.forced_class == core::RowClass::kAuto));
  s.prefill_rows = s.prefill ? most : 0;
  if (s.decode) {
    s.decode_rows =
        a.forced_class == core::RowClass::kAuto ? std::min(most, core::kDecodeRows) : most;
  }
  const auto all = [&a](std::int64_t rows) {
    return product(std::min(product(rows, a.batch), a.total_q), a.q_heads);
  };
  s.all_prefill = all(s.prefill_rows);
  s.all_decode = all(s.decode_rows);
  return s;
}

}  // namespace tilewise::plan
