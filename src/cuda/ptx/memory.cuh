// Asynchronous copies to shared memory, matrix loads from it, and warp transposes: one PTX
// instruction a function (PTX ISA 9.7.9, data movement and conversion instructions).
#pragma once

#include <cstdint>

namespace tilewise::cuda::ptx {

// The block's dynamic shared memory.
__device__ inline char* dynamic_shared() {
  extern __shared__ __align__(128) char bytes[];
  return bytes;
}

// Address in the shared window, as the instructions below take it.
__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory around L1; with `bytes` = 0 nothing is read and zeros are written.
__device__ inline void copy_async_16(std::uint32_t to, const void* from, std::uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ inline void commit_async() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }

// Waits until at most kPending of this thread's committed groups are under way.
template <int kPending>
__device__ inline void wait_async() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Four 8x8 matrices of 16-bit elements; lanes 8i .. 8i+7 give the row addresses of matrix i.
__device__ inline void load_matrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_matrix_x4_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Transposes an 8x8 matrix of 16-bit elements that lies across the warp, one register a lane.
__device__ inline std::uint32_t transpose_matrix(std::uint32_t r) {
  std::uint32_t t;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(t) : "r"(r));
  return t;
}

__device__ inline void store_shared_16(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                       std::uint32_t c, std::uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(address), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

}  // namespace tilewise::cuda::ptx
