// The body of class P on bf16 tiles against the float64 oracle, on emulated tiles, so that any CPU
// with AVX-512 runs it; and on the real ones where they are. Wholes, pieces and block sizes by
// their bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu/amx/prefill.h"
#include "cpu/backend.h"
#include "plan/amx_scratch.h"
#include "tests/unit/attention_call.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi,fma,prefer-vector-width=512")
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "cpu/amx/body.h"

namespace tilewise::cpu::amx {
namespace {

// Tile instructions as loops: the products of even and of odd depths apart, then both to the sum.
struct EmulatedTiles {
  static constexpr int kBytes = 1024;
  static inline thread_local float tiles[8][256];

  static void open() { std::memset(tiles, 0x7F, sizeof tiles); }
  static void close() {}
  template <int kTile>
  static void zero() {
    std::memset(tiles[kTile], 0, kBytes);
  }
  template <int kTile>
  static void load(const void* base) {
    std::memcpy(tiles[kTile], base, kBytes);
  }
  template <int kTile>
  static void store(void* base) {
    std::memcpy(base, tiles[kTile], kBytes);
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    std::uint16_t a[16][16][2], b[16][16][2];  // [row][depth pair] and [depth pair][column]
    std::memcpy(a, tiles[kA], kBytes);
    std::memcpy(b, tiles[kB], kBytes);
    for (int m = 0; m < 16; ++m) {
      float sums[2][16] = {};
      for (int k = 0; k < 32; ++k) {
        const float x = core::bf16_to_float(a[m][k / 2][k % 2]);
        for (int n = 0; n < 16; ++n) {
          const float y = core::bf16_to_float(b[k / 2][n][k % 2]);
          sums[k % 2][n] = __builtin_fmaf(x, y, sums[k % 2][n]);
        }
      }
      for (int n = 0; n < 16; ++n) tiles[kSum][m * 16 + n] += sums[0][n] + sums[1][n];
    }
  }
};

const Kernel kEmulatedKernel = kernel_of<EmulatedTiles>();

}  // namespace
}  // namespace tilewise::cpu::amx
#pragma GCC pop_options
#endif

namespace tilewise {
namespace {

using core::DType;

bool can_emulate() {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

struct Shape {
  std::int32_t kv_heads = 1, group = 1, head_dim = 32, v_head_dim = 32;
  std::int64_t q_len = 40, keys = 100;
};

// One request of bf16 with a contiguous cache; tests change what they study.
struct Call {
  explicit Call(const Shape& s) {
    a.q_dtype = a.kv_dtype = a.append.dtype = DType::kBf16;
    a.o_dtype = DType::kFp32;
    a.batch = 1;
    a.q_heads = s.kv_heads * s.group;
    a.kv_heads = s.kv_heads;
    a.head_dim = s.head_dim;
    a.v_head_dim = s.v_head_dim;
    a.q_len = a.max_q_len = a.total_q = s.q_len;
    a.q_stride = {0, std::int64_t{a.q_heads} * s.head_dim, s.head_dim};
    a.o_stride = {0, std::int64_t{a.q_heads} * s.v_head_dim, s.v_head_dim};
    a.lse_stride = {0, a.q_heads, 1};
    a.kv.layout = core::KvLayout::kContiguous;
    a.kv.lengths = core::KvLengths::kScalar;
    a.kv.capacity = a.kv.max_kv_len = a.kv.kv_len = s.keys;
    a.kv.k_stride = {0, std::int64_t{s.kv_heads} * s.head_dim, s.head_dim};
    a.kv.v_stride = {0, std::int64_t{s.kv_heads} * s.v_head_dim, s.v_head_dim};
    a.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
    a.forced_class = core::RowClass::kPrefill;
    fill(q, s.q_len * a.q_heads * s.head_dim);
    fill(k, s.keys * s.kv_heads * s.head_dim);
    fill(v, s.keys * s.kv_heads * s.v_head_dim);
  }

  void fill(std::vector<std::uint16_t>& to, std::int64_t count) {
    std::normal_distribution<float> normal;
    to.resize(static_cast<std::size_t>(count));
    for (auto& x : to) x = core::float_to_bf16(normal(random));
  }

  std::uint16_t& v_at(std::int64_t key, std::int64_t d) {
    return v[static_cast<std::size_t>(key * a.kv.v_stride.token + d)];
  }

  // Empty outputs, bound to the call.
  core::Attention bound(std::vector<float>& o, std::vector<float>& lse) {
    const float poison = std::numeric_limits<float>::quiet_NaN();
    o.assign(static_cast<std::size_t>(a.q_len * a.o_stride.token), poison);
    lse.assign(static_cast<std::size_t>(a.q_len * a.q_heads), poison);
    core::Attention call = a;
    call.q = q.data();
    call.kv.k = k.data();
    call.kv.v = v.data();
    call.o = o.data();
    call.lse = lse.data();
    return call;
  }

  std::mt19937 random{7};
  core::Attention a{};
  std::vector<std::uint16_t> q, k, v;
};

struct Answer {
  std::vector<float> o, lse;
};

Answer on_tiles(Call& c, std::int64_t block_rows, const cpu::amx::Kernel& kernel) {
  Answer answer;
  const core::Attention a = c.bound(answer.o, answer.lse);
  const std::uint64_t bytes = plan::lay_out_amx(a.head_dim, a.v_head_dim, block_rows).bytes;
  std::vector<char> scratch(bytes + 64, '\xFF');
  char* aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
  const std::int64_t packed = a.q_len * a.group();
  for (std::int32_t head = 0; head < a.kv_heads; ++head) {
    for (std::int64_t first = 0; first < packed; first += block_rows) {
      const cpu::Block block{cpu::open_keys(a, 0, core::IgnoreFaults{}), head, first,
                             std::min(block_rows, packed - first), nullptr};
      cpu::BlockRows rows;
      cpu::KeyTile tile;
      cpu::open_rows(block, &rows);
      cpu::amx_prefill(block, rows, &tile, aligned, kernel);
    }
  }
  return answer;
}

Answer by_oracle(Call& c) {
  Answer answer;
  const core::Attention a = c.bound(answer.o, answer.lse);
  cpu::reference_attention(a, {testing::thread_per_task, nullptr, 1});
  return answer;
}

bool same_bytes(const Answer& x, const Answer& y) {
  return std::memcmp(x.o.data(), y.o.data(), x.o.size() * sizeof(float)) == 0 &&
         std::memcmp(x.lse.data(), y.lse.data(), x.lse.size() * sizeof(float)) == 0;
}

void expect_close(const Answer& got, const Answer& wanted) {
  for (std::size_t i = 0; i < wanted.o.size(); ++i) {
    if (std::isfinite(wanted.o[i])) {
      // Rounding of P to 8 bits, of values of order 1.
      ASSERT_NEAR(got.o[i], wanted.o[i], 0.012) << "output " << i;
    } else {
      ASSERT_EQ(std::isnan(got.o[i]), std::isnan(wanted.o[i])) << "output " << i;
      if (std::isinf(wanted.o[i])) {
        ASSERT_EQ(got.o[i], wanted.o[i]) << "output " << i;
      }
    }
  }
  for (std::size_t i = 0; i < wanted.lse.size(); ++i) {
    if (std::isinf(wanted.lse[i])) {
      ASSERT_EQ(got.lse[i], wanted.lse[i]) << "lse " << i;
    } else {
      ASSERT_NEAR(got.lse[i], wanted.lse[i], 2e-5) << "lse " << i;
    }
  }
}

// Emulated and, where there are any, real tiles.
class Amx : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() ? !cpu::amx_available() : !can_emulate()) GTEST_SKIP();
  }
  const cpu::amx::Kernel& kernel() const {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    if (!GetParam()) return cpu::amx::kEmulatedKernel;
#endif
    return cpu::amx::kHardwareKernel;
  }
  void expect_right(Call& c) {
    const Answer wanted = by_oracle(c);
    const Answer got = on_tiles(c, 64, kernel());
    expect_close(got, wanted);
    for (const std::int64_t rows : {5, 256}) {
      EXPECT_TRUE(same_bytes(on_tiles(c, rows, kernel()), got)) << "blocks of " << rows << " rows";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Tiles, Amx, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Hardware" : "Emulated");
});

TEST_P(Amx, EqualsTheOracleAtOddSizes) {
  for (const std::int64_t keys : {1, 31, 32, 33, 63, 64, 65, 257, 577}) {
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(keys) + " keys, causal " + std::to_string(causal));
      Call c({1, 1, 32, 32, 37, keys});
      c.a.rule.causal = causal;
      expect_right(c);
    }
  }
}

TEST_P(Amx, EqualsTheOracleAtEveryHeadDim) {
  for (std::int32_t dim = 8; dim <= 512; dim += dim < 136 ? 8 : 88) {
    SCOPED_TRACE(dim);
    Call c({1, 1, dim, 520 - dim, 9, 70});
    c.a.rule.causal = true;
    expect_right(c);
  }
}

TEST_P(Amx, EqualsTheOracleWithGroupsAndHeads) {
  Call c({3, 7, 48, 40, 17, 300});
  c.a.rule.causal = true;
  expect_right(c);
}

TEST_P(Amx, EqualsTheOracleWithEveryKindOfLogit) {
  std::vector<float> slopes = {0.5f, 0.0f}, sinks = {1.0f, -2.0f};
  for (const bool capped : {false, true}) {
    for (const bool slanted : {false, true}) {
      for (const float scale : {0.3f, -0.3f}) {
        Call c({1, 2, 64, 64, 50, 333});
        c.a.rule.causal = true;
        c.a.scale = scale;
        c.a.softcap = capped ? 2.0f : 0.0f;
        c.a.alibi = slanted ? slopes.data() : nullptr;
        c.a.sinks = sinks.data();
        expect_right(c);
      }
    }
  }
}

TEST_P(Amx, EqualsTheOracleWithWindowsMasksAndPositions) {
  std::vector<std::uint8_t> mask(60 * 700);
  std::vector<std::int32_t> positions(60);
  Call c({1, 1, 32, 32, 60, 700});
  for (auto& byte : mask) byte = c.random() % 3 != 0;
  for (auto& at : positions) at = static_cast<std::int32_t>(c.random() % 1000) - 100;
  for (const int masked : {0, 1}) {
    for (const int placed : {0, 1}) {
      for (const int window : {-1, 0, 70}) {
        c.a.mask = {masked != 0 ? mask.data() : nullptr, 0, 0, 700, nullptr, nullptr, 700, 0};
        c.a.q_positions = placed != 0 ? positions.data() : nullptr;
        c.a.rule = {window >= 0, window >= 0, false, std::max(window, 0), 0};
        expect_right(c);
      }
    }
  }
}

TEST_P(Amx, SeesNothingOfPagesThatAreNotThere) {
  Call c({1, 1, 32, 32, 20, 640});
  std::vector<std::int32_t> table = {3, -1, 0, -1, -1, -1, -1, -1, 9, 1};
  c.a.kv.layout = core::KvLayout::kPaged;
  c.a.kv.page_size = 64;
  c.a.kv.num_pages = 10;
  c.a.kv.k_stride.batch = 64 * c.a.kv.k_stride.token;
  c.a.kv.v_stride.batch = 64 * c.a.kv.v_stride.token;
  c.a.kv.table_width = 10;
  c.a.kv.page_row_stride = 10;
  c.a.kv.page_table_rows = 1;
  c.a.kv.page_table = table.data();
  expect_right(c);
}

TEST_P(Amx, CountsKeysExactlyWhenQueriesAreZero) {
  for (const std::int64_t keys : {1, 64, 65, 1009}) {
    Call c({1, 1, 32, 32, 33, keys});
    std::fill(c.q.begin(), c.q.end(), std::uint16_t{0});
    const Answer got = on_tiles(c, 64, kernel());
    for (const float lse : got.lse) {
      ASSERT_EQ(lse, static_cast<float>(std::log(static_cast<double>(keys))));
    }
  }
}

TEST_P(Amx, GivesOneKeyItsValuesExactly) {
  Call c({1, 1, 64, 64, 70, 70});
  c.a.rule = {true, true, false, 0, 0};  // each row sees itself alone
  const Answer got = on_tiles(c, 64, kernel());
  for (std::int64_t i = 0; i < 70; ++i) {
    for (std::int64_t d = 0; d < 64; ++d) {
      ASSERT_EQ(got.o[static_cast<std::size_t>(i * 64 + d)], core::bf16_to_float(c.v_at(i, d)));
    }
  }
}

TEST_P(Amx, LeavesRowsThatSeeNothingEmpty) {
  Call c({1, 1, 32, 32, 80, 40});  // the first 40 rows stand before key 0
  c.a.rule.causal = true;
  const Answer got = on_tiles(c, 64, kernel());
  for (std::int64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(got.lse[static_cast<std::size_t>(i)], -std::numeric_limits<float>::infinity());
    for (std::size_t d = 0; d < 32; ++d) {
      const float x = got.o[static_cast<std::size_t>(i) * 32 + d];
      ASSERT_TRUE(x == 0.0f && !std::signbit(x));
    }
  }
  expect_right(c);
}

TEST_P(Amx, KeepsInfinitiesFromRowsThatDoNotSeeThem) {
  for (const std::uint16_t odd :
       {std::uint16_t{0x7F80}, std::uint16_t{0xFF80}, std::uint16_t{0x7FC0}}) {
    for (const std::int64_t key : {0, 50, 64, 99}) {
      SCOPED_TRACE(key);
      Call c({1, 1, 32, 24, 100, 100});
      c.a.rule.causal = true;
      c.v_at(key, 3) = odd;
      c.v_at(key, 23) = odd;
      const Answer wanted = by_oracle(c);
      expect_close(on_tiles(c, 64, kernel()), wanted);
      expect_close(on_tiles(c, 7, kernel()), wanted);
    }
  }
}

TEST_P(Amx, GivesAPromptInPiecesTheBytesOfTheWhole) {
  Call whole({1, 2, 72, 64, 150, 150});
  whole.a.rule = {true, true, false, 90, 0};
  const Answer all = on_tiles(whole, 256, kernel());
  for (const std::int64_t cut : {1, 64, 149}) {
    Call piece = whole;
    const std::int32_t start = static_cast<std::int32_t>(cut);
    piece.a.q_len = piece.a.max_q_len = piece.a.total_q = 150 - cut;
    piece.a.q_start = &start;
    piece.q.erase(piece.q.begin(), piece.q.begin() + cut * whole.a.q_stride.token);
    const Answer rest = on_tiles(piece, 32, kernel());
    const std::size_t from = static_cast<std::size_t>(cut * whole.a.o_stride.token);
    EXPECT_EQ(std::memcmp(rest.o.data(), all.o.data() + from, rest.o.size() * sizeof(float)), 0);
  }
}

TEST(AmxSupport, AnswersTheSameEveryTime) {
  const bool first = cpu::amx_available();
  EXPECT_EQ(cpu::amx_available(), first);
}

}  // namespace
}  // namespace tilewise
