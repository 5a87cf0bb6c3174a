// Launch choice and workspace layout of the CUDA backend, as pure functions of a checked call and
// of facts about the device. Nothing here decides bits, and the workspace depends on no device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/attention.h"
#include "core/status.h"

namespace tilewise::plan {

struct CudaFacts {
  bool present;          // false: no device; a plan is then as if on an H200
  std::int32_t compute;  // 10 * major + minor
  std::int32_t sm_count;
  std::int32_t smem_per_block;  // bytes, with opt-in
  std::int32_t smem_per_sm;
  const char* name;
};

// Numbers that callers may force through tw_attention_args.variant; stable.
enum class CudaVariant : std::int32_t {
  kAuto = 0,
  kReference = 1,   // of the CPU only
  kSimtSelf = 2,    // plain arithmetic, any types and dims; a block folds its own chunks
  kSimtSplit = 3,   // as 2, chunks of class D shared between blocks, a second kernel folds them
  kMmaSelf = 4,     // tensor cores; a block folds its own chunks
  kMmaCluster = 5,  // as 4, the blocks of a cluster share a row and fold through shared memory
  kMmaSplit = 6     // as 4, a second kernel folds
};
constexpr std::int32_t kCudaVariants = 7;

enum class CudaSharing : std::int32_t { kSelf, kCluster, kSplit };

struct CudaPlan {
  CudaVariant variant;
  bool mma, prefill, decode;  // body; classes that may occur
  std::int32_t dim;           // instance of the tensor-core bodies
  // Class D.
  CudaSharing sharing;
  std::int32_t parts;         // blocks that share a row at most
  std::int64_t keys_of_part;  // kSplit: keys that are worth a block of their own
  std::int64_t fair_shares;   // that the keys of a batch are divided into
  std::int32_t tile_rows;     // packed rows that a block has room for
  std::int32_t used_rows;     // and has at most
  std::int32_t stages;        // of the ring
  std::int32_t shared_bytes;  // of a block
  std::int64_t row_blocks;    // blocks of a request and KV head
  std::int64_t request_rows;  // bound of the q rows of a request
  std::int64_t max_chunks;    // bound of the chunks of a request
  // Class P.
  std::int64_t prefill_blocks;  // bound of the row tiles of all requests, for one KV head
  std::int32_t prefill_rows;    // packed rows of a tile
  // Appended rows of another type than the cache's are converted here, where a slot may be missing.
  bool converts;
  std::uint64_t converted_offset, partials_offset, counts_offset, workspace_bytes;
};

// The workspace: converted rows, partial results, and how many chunks of each request are to be
// folded. A partial result of class D: v_head_dim floats, then maximum and sum, at
// ((request * request_rows + row) * q_heads + head) * max_chunks + chunk.
constexpr std::int64_t cuda_partial_floats(const core::Attention& a) { return a.v_head_dim + 2; }

core::Status plan_cuda_attention(const core::Attention& a, const CudaFacts& facts,
                                 std::int32_t variant, CudaPlan* plan);

std::size_t explain_cuda_attention(const core::Attention& a, const CudaFacts& facts,
                                   const CudaPlan& plan, char* text, std::size_t capacity);

// What a device must be for this build, and an H200 for plans without a device.
constexpr std::int32_t kLeastCompute = 80;
constexpr CudaFacts h200_facts() {
  return {false, 90, 132, 232448, 233472, "none (as on an H200)"};
}

}  // namespace tilewise::plan
