// Host versions of src/cuda/ptx/cluster.cuh: grids follow each other, and there are no clusters.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace tilewise::cuda::ptx {

inline void wait_for_grid() {}
inline void release_dependents() {}
inline void cluster_arrive() { std::abort(); }
inline void cluster_arrive_relaxed() { std::abort(); }
inline void cluster_wait() { std::abort(); }
inline void store_remote(std::uint32_t, std::uint32_t, float, float) { std::abort(); }

}  // namespace tilewise::cuda::ptx
