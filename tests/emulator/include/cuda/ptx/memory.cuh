// Host versions of src/cuda/ptx/memory.cuh. Addresses of shared memory are offsets into the
// block's.
#pragma once

#include <cstdint>
#include <cstring>

namespace tilewise::cuda::ptx {

inline char* dynamic_shared() { return emulator::current->block->shared; }
inline char* at(std::uint64_t address) { return dynamic_shared() + address; }

inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const char*>(pointer) - dynamic_shared());
}

inline void copy_async_16(std::uint32_t to, const void* from, std::uint32_t bytes) {
  if (bytes != 0) {
    std::memcpy(at(to), from, 16);
  } else {
    std::memset(at(to), 0, 16);
  }
}
inline void commit_async() {}
template <int kPending>
void wait_async() {}

inline void load_matrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  std::uint64_t rows[32];
  emulator::gather(address, rows);
  const unsigned lane = emulator::own_lane();
  for (unsigned m = 0; m < 4; ++m) std::memcpy(&r[m], at(rows[8 * m + lane / 4]) + lane % 4 * 4, 4);
}

inline void load_matrix_x4_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  std::uint64_t rows[32];
  emulator::gather(address, rows);
  const unsigned lane = emulator::own_lane();
  for (unsigned m = 0; m < 4; ++m) {
    std::uint16_t pair[2];
    for (unsigned j = 0; j < 2; ++j)
      std::memcpy(&pair[j], at(rows[8 * m + 2 * (lane % 4) + j]) + lane / 4 * 2, 2);
    std::memcpy(&r[m], pair, 4);
  }
}

inline std::uint32_t transpose_matrix(std::uint32_t r) {
  std::uint64_t all[32];
  emulator::gather(r, all);
  const unsigned lane = emulator::own_lane(), column = lane / 4;
  std::uint32_t t = 0;
  for (unsigned j = 0; j < 2; ++j) {
    const unsigned row = 2 * (lane % 4) + j;
    const std::uint64_t half = all[row * 4 + column / 2] >> (16 * (column % 2)) & 0xFFFF;
    t |= static_cast<std::uint32_t>(half) << (16 * j);
  }
  return t;
}

inline void store_shared_16(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                            std::uint32_t c, std::uint32_t d) {
  const std::uint32_t words[4] = {a, b, c, d};
  std::memcpy(at(address), words, sizeof words);
}

}  // namespace tilewise::cuda::ptx
