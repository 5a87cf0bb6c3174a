// Discovery: version, build facts, error texts, supported types.
#include <cstdio>

#include "api/check.h"
#include "api/error.h"
#include "cpu/backend.h"
#include "cpu/isa.h"
#include "cuda/backend.h"

namespace tilewise::api {
namespace {

struct BuildInfo {
  char text[512];
  BuildInfo() {
    const plan::CpuFacts facts = cpu::facts(cpu::make_parallel(nullptr, nullptr, 0));
    const char* note = cpu::isa().note;
    std::snprintf(text, sizeof text,
                  "version: %d.%d.%d\ncompiler: %s\nbackends: %s\ncpu_isa: %s\ncpu_isa_note: %s\n"
                  "cpu_amx: %s\ncpu_threads: %d\n",
                  TW_VERSION_MAJOR, TW_VERSION_MINOR, TW_VERSION_PATCH, __VERSION__,
                  cuda::built() ? "cpu, cuda" : "cpu", facts.isa, note != nullptr ? note : "none",
                  facts.amx ? "yes" : "no", facts.threads);
  }
};

bool supports(tw_device_kind kind, tw_dtype q, tw_dtype kv, std::int32_t head_dim,
              std::int32_t v_head_dim) {
  core::DType q_type;
  core::DType kv_type;
  if (kind != TW_DEVICE_CPU && (kind != TW_DEVICE_CUDA || !cuda::built())) return false;
  if (!read_dtype("", q, nullptr, &q_type).ok()) return false;
  return read_dtype("", kv, &q_type, &kv_type).ok() && check_head_dim("", head_dim).ok() &&
         (v_head_dim == 0 || check_head_dim("", v_head_dim).ok());
}

}  // namespace
}  // namespace tilewise::api

extern "C" {

uint32_t tw_version(void) {
  return (TW_VERSION_MAJOR << 16) | (TW_VERSION_MINOR << 8) | TW_VERSION_PATCH;
}

const char* tw_build_info(void) {
  static const tilewise::api::BuildInfo info;
  return info.text;
}

const char* tw_last_error(void) { return tilewise::api::last_error(); }

const char* tw_status_string(tw_status status) {
  static const char* const names[] = {
      "OK", "INVALID_ARGUMENT", "UNSUPPORTED", "WORKSPACE_TOO_SMALL", "BACKEND_ERROR", "INTERNAL"};
  return status >= TW_OK && status <= TW_INTERNAL ? names[status] : "unknown status";
}

int32_t tw_supports(tw_device_kind kind, tw_dtype q_dtype, tw_dtype kv_dtype, int32_t head_dim,
                    int32_t v_head_dim) {
  return tilewise::api::supports(kind, q_dtype, kv_dtype, head_dim, v_head_dim) ? 1 : 0;
}

}  // extern "C"
