// CUDA's words for g++, put in front of every kernel source by -include.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "fibres.h"

#define __device__
#define __global__
#define __host__
#define __noinline__
#define __forceinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local
#define threadIdx (::tilewise::emulator::current->index)
#define blockIdx (::tilewise::emulator::block_index)
#define blockDim (::tilewise::emulator::block_size)

struct uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

using std::isnan;
using std::max;
using std::min;

inline void __syncthreads() { tilewise::emulator::wait(tilewise::emulator::current->block->all); }
inline void __syncwarp() { tilewise::emulator::wait(tilewise::emulator::own_warp()); }

inline int __syncthreads_or(int mine) {
  tilewise::emulator::Block& block = *tilewise::emulator::current->block;
  __syncthreads();
  if (threadIdx.x == 0) block.vote = 0;
  __syncthreads();
  block.vote |= mine != 0 ? 1 : 0;
  __syncthreads();
  const int all = block.vote;
  __syncthreads();
  return all;
}

template <class T>
T __shfl_sync(unsigned, T mine, int lane) {
  return tilewise::emulator::shuffle(mine, static_cast<unsigned>(lane));
}
template <class T>
T __shfl_xor_sync(unsigned, T mine, int lanes) {
  return tilewise::emulator::shuffle(mine,
                                     tilewise::emulator::own_lane() ^ static_cast<unsigned>(lanes));
}
template <class T>
T __shfl_up_sync(unsigned, T mine, unsigned distance) {
  const unsigned lane = tilewise::emulator::own_lane();
  return tilewise::emulator::shuffle(mine, lane >= distance ? lane - distance : lane);
}

inline unsigned __ballot_sync(unsigned, bool mine) {
  std::uint64_t all[32];
  tilewise::emulator::gather(mine ? 1 : 0, all);
  unsigned lanes = 0;
  for (unsigned i = 0; i < 32; ++i) lanes |= static_cast<unsigned>(all[i]) << i;
  return lanes;
}
inline bool __any_sync(unsigned lanes, bool mine) { return __ballot_sync(lanes, mine) != 0; }

inline int __reduce_min_sync(unsigned, int x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = min(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}
inline int __reduce_max_sync(unsigned, int x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = max(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}

inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int atomicCAS(int* at, int expected, int wanted) {
  return __sync_val_compare_and_swap(at, expected, wanted);
}
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long more) {
  return __sync_fetch_and_add(at, more);
}
