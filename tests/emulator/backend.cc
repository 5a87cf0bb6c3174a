// The device of the emulator: an H200 without clusters, in host memory.
#include "cuda/backend.h"

#include "cuda/guard.h"
#include "cuda/launch/launch.h"

namespace tilewise::cuda {
namespace {

core::Status not_emulated() {
  return core::Status::error(core::Code::kUnsupported, "the emulator does attention only");
}

}  // namespace

bool built() { return true; }
plan::CudaFacts facts(std::int32_t) { return {true, 80, 132, 232448, 233472, "emulator"}; }
core::Status check_device(std::int32_t) { return {}; }
core::Status DeviceGuard::enter(std::int32_t) { return {}; }
DeviceGuard::~DeviceGuard() = default;

core::Status run_qk_prep(const core::QkPrep&, const Queue&, FaultRecord*) { return not_emulated(); }
core::Status run_rope(const core::Rope&, const Queue&, FaultRecord*) { return not_emulated(); }
core::Status run_kv_append(const core::KvAppend&, const Queue&, FaultRecord*) {
  return not_emulated();
}
core::Status run_merge_states(const core::MergeStates&, const Queue&) { return not_emulated(); }
core::Status run_output_gate(const core::OutputGate&, const Queue&) { return not_emulated(); }
core::Status run_elementwise(const core::Elementwise&, const Queue&) { return not_emulated(); }

// Its kernel divides warps into teams, which fibres cannot wait for.
core::Status launch_convert_append(const ConvertLaunch& launch) {
  const core::Attention& a = launch.a;
  const bool ragged = a.q_indptr != nullptr;
  char* v = static_cast<char*>(launch.to) +
            a.total_q * a.kv_heads * a.head_dim * core::size_of(a.kv_dtype);
  const auto convert = [&a](void* to, std::int64_t at, const void* from, std::int64_t from_at,
                            std::int32_t dim) {
    for (std::int32_t d = 0; d < dim; ++d) {
      core::store_element(to, a.kv_dtype, at + d,
                          core::load_element(from, a.append.dtype, from_at + d));
    }
  };
  for (std::int32_t r = 0; r < a.batch; ++r) {
    const core::RequestRows rows =
        core::request_rows(a.q_indptr, a.q_len, a.total_q, a.max_q_len, r, core::IgnoreFaults{});
    for (std::int64_t n = 0; n < rows.count * a.kv_heads; ++n) {
      const std::int64_t row = n / a.kv_heads, head = n % a.kv_heads;
      const std::int64_t to = (rows.first + row) * a.kv_heads + head;
      convert(launch.to, to * a.head_dim, a.append.k,
              core::row_offset(a.append.k_stride, ragged, r, rows, row, head), a.head_dim);
      convert(v, to * a.v_head_dim, a.append.v,
              core::row_offset(a.append.v_stride, ragged, r, rows, row, head), a.v_head_dim);
    }
  }
  return {};
}

}  // namespace tilewise::cuda
