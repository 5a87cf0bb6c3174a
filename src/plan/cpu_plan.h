// Launch choice and workspace layout of the CPU backend, as pure functions of a
// checked call and of facts about the machine. Nothing here decides bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/attention.h"
#include "core/status.h"

namespace tilewise::plan {

struct CpuFacts {
  std::int32_t threads;  // workers that a call may use
  bool amx;              // bf16 tiles usable in this process
  const char* isa;       // name of the vector target in use
};

// Numbers that callers may force through tw_attention_args.variant; stable.
enum class CpuVariant : std::int32_t {
  kAuto = 0,
  kReference = 1,  // float64 oracle
  kSimdSelf = 2,   // vector kernels; a worker runs and folds all chunks of its rows
  kSimdSplit = 3,  // vector kernels; chunks go to the workspace, a second pass folds them
  kAmxSelf = 4,    // as 2, class P of bf16 on AMX tiles
  kAmxSplit = 5    // as 3, likewise
};

enum class Sharing : std::int32_t { kSelf, kSplit };

struct CpuPlan {
  CpuVariant variant;
  bool prefill_on_amx;
  Sharing sharing;
  std::int32_t workers;
  std::int64_t q_tile;               // rows (q rows x group heads) of a class P block
  std::int64_t decode_rows;          // likewise of class D
  std::int64_t decode_request_rows;  // bound of the q rows of a class D request
  std::int64_t direct_heads;         // KV heads that an item of few rows walks together
  std::int64_t max_chunks;           // bound of the chunks of a class D request
  std::int64_t decode_slots;         // kSplit: class D rows x q heads, each of
                                     // max_chunks partials
  std::uint64_t worker_bytes;        // scratch of a worker, a multiple of 256
  // The workspace: a cursor of every worker, their scratch, the partials.
  std::uint64_t scratch_offset, partials_offset, workspace_bytes;
};

constexpr std::uint64_t kMaxWorkspaceBytes = std::uint64_t{256} << 20;

// Decides everything about a call but its bits. Fails only for a variant that
// this machine or call cannot run.
core::Status plan_cpu_attention(const core::Attention& a, const CpuFacts& facts,
                                std::int32_t variant, CpuPlan* plan);

// One fact a line: "name: value". Returns the whole text's length; writes at
// most `capacity` bytes with the terminator.
std::size_t explain_cpu_attention(const core::Attention& a, const CpuFacts& facts,
                                  const CpuPlan& plan, char* text, std::size_t capacity);

}  // namespace tilewise::plan
