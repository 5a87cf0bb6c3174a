// How the threads of a small operation share its rows: a team of 2^k neighbouring threads for each
// row, whose threads go round the groups of elements of all its heads.
#pragma once

#include <cstdint>

namespace tilewise::cuda::kernel {

constexpr std::int32_t kOpThreads = 256;  // of a block
constexpr std::int32_t kWarp = 32;

// The smallest team, of at most `most` threads (a power of two), that has one for each of `groups`.
constexpr std::int32_t team_size(std::int64_t groups, std::int32_t most = kOpThreads) {
  std::int32_t size = 1;
  while (size < most && size < groups) size *= 2;
  return size;
}

struct TeamThread {
  std::int64_t row;
  std::int32_t lane, size;
};

__device__ inline std::int64_t grid_thread() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ inline TeamThread team_thread(std::int32_t size) {
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t teams = static_cast<std::int32_t>(blockDim.x) / size;
  return {std::int64_t{blockIdx.x} * teams + thread / size, thread % size, size};
}

// Waits for the other threads of a team that is a warp or a part of one.
__device__ inline void sync_team(const TeamThread& thread) {
  const std::uint32_t first = threadIdx.x % 32 - static_cast<std::uint32_t>(thread.lane);
  __syncwarp(~0u >> (32 - thread.size) << first);
}

// Walks one thread's share of `heads` x `groups`.
struct GroupWalk {
  std::int64_t head;
  std::int32_t group, groups;
  std::int32_t head_step, group_step;

  __device__ GroupWalk(const TeamThread& thread, std::int32_t groups_of_head)
      : head(thread.lane / groups_of_head),
        group(thread.lane % groups_of_head),
        groups(groups_of_head),
        head_step(thread.size / groups_of_head),
        group_step(thread.size % groups_of_head) {}

  __device__ void next() {
    head += head_step;
    group += group_step;
    if (group < groups) return;
    group -= groups;
    ++head;
  }
};

}  // namespace tilewise::cuda::kernel
