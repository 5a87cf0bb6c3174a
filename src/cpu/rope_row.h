// The rotary table's row of one position, as floats, and the kernel that turns a head by it. Shared
// by tw_qk_prep and tw_rope.
#pragma once

#include <cstdint>

#include "core/ops.h"
#include "cpu/convert_row.h"
#include "cpu/simd/ops.h"

namespace tilewise::cpu {

struct RopeRow {
  float cosine[kMaxHeadDim / 2];
  float sine[kMaxHeadDim / 2];
};

inline void load_table_row(core::DType type, const void* data, std::int64_t at, std::int64_t stride,
                           std::int64_t count, float* to) {
  if (stride == 1) {
    ops_kernels(type).load(element_address(data, type, at), count, to);
    return;
  }
  for (std::int64_t d = 0; d < count; ++d) to[d] = core::load_element(data, type, at + d * stride);
}

// `position` must be inside the table.
inline void load_rope_row(const core::RopeTable& table, std::int64_t position, RopeRow* row) {
  const std::int64_t pairs = table.rotary_dim / 2;
  if (pairs == 0) return;  // strides of a table without entries may be anything
  load_table_row(table.dtype, table.cos, position * table.cos_row_stride, table.cos_element_stride,
                 pairs, row->cosine);
  load_table_row(table.dtype, table.sin, position * table.sin_row_stride, table.sin_element_stride,
                 pairs, row->sine);
}

// Turns the first rotary_dim values of a head; the others stay.
inline void rotate_head(const OpsKernels& kernels, const core::RopeTable& table, bool two_step,
                        const RopeRow& row, float* x) {
  const bool halves = table.pairs == core::PairStyle::kHalves;
  const auto rotate = halves     ? two_step ? kernels.rotate_halves_two_step : kernels.rotate_halves
                      : two_step ? kernels.rotate_interleaved_two_step
                                 : kernels.rotate_interleaved;
  rotate(row.cosine, row.sine, table.rotary_dim / 2, x);
}

}  // namespace tilewise::cpu
