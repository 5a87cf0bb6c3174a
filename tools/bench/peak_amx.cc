// Peak of the bf16 tile unit: four independent chains of products that stay in the tile registers.
// Compiled with the tile flags of cmake/flags.cmake; runs only after amx_usable() said yes.
#include "bench/peak_kernels.h"

#if defined(__x86_64__) && defined(__AMX_BF16__)
#include <immintrin.h>

namespace tilewise::bench {
namespace {

// Palette 1: eight tiles of 16 rows of 64 bytes. Constant data, since the compiler believes that
// loading the configuration reads its first eight bytes only and drops stores to the rest.
struct alignas(64) TileConfig {
  std::uint8_t palette;
  std::uint8_t start_row;
  std::uint8_t reserved[14];
  std::uint16_t row_bytes[16];
  std::uint8_t rows[16];
};
constexpr std::uint16_t kB = 64;
constexpr std::uint8_t kR = 16;
const TileConfig kConfig = {
    1, 0, {}, {kB, kB, kB, kB, kB, kB, kB, kB}, {kR, kR, kR, kR, kR, kR, kR, kR}};

}  // namespace

double run_amx(std::int64_t rounds) {
  _tile_loadconfig(&kConfig);
  // Two by two: tiles 0-3 accumulate, 4-5 hold A, 6-7 hold B. Zeros take as long as any value.
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  constexpr double kOperations = 2.0 * 16 * 16 * 32;  // of one product: 16 x 16 outputs, 32 deep
  return 4.0 * kOperations * static_cast<double>(rounds);
}

}  // namespace tilewise::bench
#else
namespace tilewise::bench {

double run_amx(std::int64_t) { return 0.0; }

}  // namespace tilewise::bench
#endif
