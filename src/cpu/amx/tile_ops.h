// AMX tile instructions, one a function, so that tile numbers can be template values (the
// compiler's intrinsics are macros that paste a literal). Loads and stores clobber memory: program
// order is what the tiles see. All tiles are 16 rows of 64 bytes that lie 1,024 bytes each, without
// gaps. Bodies take these as a type, so that tests can run them on a CPU without AMX.
#pragma once

#include <cstdint>

namespace tilewise::cpu::amx {
namespace {

constexpr int kTiles = 8;

struct alignas(64) TileConfig {
  std::uint8_t palette, start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};

struct HardwareTiles {
  static void open() {
    TileConfig config{};
    config.palette = 1;
    for (int t = 0; t < kTiles; ++t) {
      config.row_bytes[t] = 64;
      config.rows[t] = 16;
    }
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }

  static void close() { asm volatile("tilerelease" : : : "memory"); }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  template <int kTile>
  static void load(const void* base) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(base), "r"(std::int64_t{64}), "i"(kTile)
                 : "memory");
  }

  template <int kTile>
  static void store(void* base) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(base), "r"(std::int64_t{64}), "i"(kTile)
                 : "memory");
  }

  // kSum += kA (16 x 32 bf16) times kB (32 x 16 bf16, pairs of rows interleaved), in float32.
  template <int kSum, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace tilewise::cpu::amx
