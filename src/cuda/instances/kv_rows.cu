// tw_kv_append and the conversion of appended rows, any types and dims.
#include "cuda/launch/ops_kv_rows.cuh"

namespace tilewise::cuda {
core::Status launch_kv_append(const core::KvAppend& p, void* stream, core::FaultRecord* faults) {
  return start_kv_append(p, stream, faults);
}
core::Status launch_convert_append(const ConvertLaunch& launch) {
  return start_convert_append(launch);
}
}  // namespace tilewise::cuda
