// tw_output_gate, tw_softcap and tw_scale on the CPU: elementwise in place, fp32 inside, rounded
// once.
#include <algorithm>
#include <cstdint>

#include "core/ops.h"
#include "core/rows.h"
#include "cpu/backend.h"
#include "cpu/convert_row.h"
#include "cpu/rows.h"
#include "cpu/simd/ops.h"

namespace tilewise::cpu {

void run_output_gate(const core::OutputGate& p, const Parallel& parallel) {
  const OpsKernels& kernels = ops_kernels(p.dtype);
  const std::int64_t chunk = rows_of_item(p.head_dim);
  const std::int64_t all = p.rows * p.heads;
  for_each_item(parallel, core::divide_up(all, chunk), [&](std::int64_t, std::int64_t item) {
    const std::int64_t end = std::min((item + 1) * chunk, all);
    for (std::int64_t i = item * chunk; i < end; ++i) {
      const std::int64_t row = i / p.heads;
      const std::int64_t head = i % p.heads;
      const std::int64_t gate = row * p.gate_row_stride + head * p.gate_head_stride;
      const std::int64_t o = row * p.o_row_stride + head * p.o_head_stride;
      kernels.gate(element_address(p.gate, p.dtype, gate), p.head_dim,
                   element_address(p.o, p.dtype, o));
    }
  });
}

void run_elementwise(const core::Elementwise& p, const Parallel& parallel) {
  constexpr std::int64_t kChunk = 16384;
  const OpsKernels& kernels = ops_kernels(p.dtype);
  const auto run = p.op == core::ElementwiseOp::kSoftcap ? kernels.softcap : kernels.multiply;
  for_each_item(parallel, core::divide_up(p.n, kChunk), [&](std::int64_t, std::int64_t item) {
    const std::int64_t begin = item * kChunk;
    run(p.value, std::min(kChunk, p.n - begin), element_address(p.x, p.dtype, begin));
  });
}

}  // namespace tilewise::cpu
