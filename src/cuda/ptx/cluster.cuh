// Thread block clusters and dependent launch (PTX ISA 9.7.13 barrier.cluster, 9.7.9 mapa and
// st.shared::cluster, 9.7.16 griddepcontrol). Code for older devices never launches clusters; there
// these functions do nothing.
#pragma once

#include <cstdint>

namespace tilewise::cuda::ptx {

__device__ inline void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
#endif
}

// Arrives without ordering any memory access: says only that this block has started.
__device__ inline void cluster_arrive_relaxed() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
#endif
}

__device__ inline void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

// Writes two floats to the shared memory of block `rank` of the cluster, at the address (a multiple
// of 8) that `to` has here.
__device__ inline void store_remote(std::uint32_t to, std::uint32_t rank, float first,
                                    float second) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.v2.f32 [remote], {%2, %3};\n}\n" ::"r"(to),
      "r"(rank), "f"(first), "f"(second)
      : "memory");
#endif
}

// Waits for the grids that this one depends on, if it was launched before they ended.
__device__ inline void wait_for_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// Lets dependent grids start.
__device__ inline void release_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

}  // namespace tilewise::cuda::ptx
