// Public bug reports about rotary embedding: tables, widths, strides. Names carry the ids of
// docs/cases.md.
#include <cmath>

#include "tests/support/attend.h"
#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

// cos and sin of position * theta^(-2d/rotary_dim), times a factor, exactly as long as needed
// between guards.
class Table {
 public:
  Table(Index rows, Index rotary_dim, double factor = 1)
      : cos_(rows * rotary_dim * 2, 4), sin_(rows * rotary_dim * 2, 4) {
    const Index half = rotary_dim / 2;
    for (Index e = 0; e < rows * half; ++e) {
      const double exponent = -2 * static_cast<double>(e % half) / static_cast<double>(rotary_dim);
      const double angle = static_cast<double>(e / half) * std::pow(1e4, exponent);
      verify::store(cos_.data(), TW_DTYPE_FP32, e, factor * std::cos(angle));
      verify::store(sin_.data(), TW_DTYPE_FP32, e, factor * std::sin(angle));
    }
    args.struct_size = sizeof args;
    args.cos = cos_.data();
    args.sin = sin_.data();
    args.cos_row_stride = args.sin_row_stride = half;
    args.rows = rows;
    args.rotary_dim = static_cast<std::int32_t>(rotary_dim);
  }
  double cosine(Index e) const { return verify::load(cos_.data(), TW_DTYPE_FP32, e); }
  double sine(Index e) const { return verify::load(sin_.data(), TW_DTYPE_FP32, e); }
  tw_rope_table args{};

 private:
  verify::Block cos_, sin_;
};

// x [batch][heads][dim] in float32, one token a request, rotated in place.
struct Rows {
  Rows(Index batch, Index heads, Index dim) : x(batch * heads * dim * 4, 4) {
    for (Index e = 0; e < batch * heads * dim; ++e)
      verify::store(x.data(), TW_DTYPE_FP32, e, verify::Stream(56, verify::kQ).normal(e));
    args.struct_size = sizeof args;
    args.dtype = TW_DTYPE_FP32;
    args.batch = static_cast<std::int32_t>(batch);
    args.q_len = 1;
    args.heads = static_cast<std::int32_t>(heads);
    args.head_dim = static_cast<std::int32_t>(dim);
    args.x = x.data();
    args.x_batch_stride = args.x_token_stride = heads * dim;
    args.x_head_stride = dim;
    args.status = &fault;
  }
  double value(Index e) const { return verify::load(x.data(), TW_DTYPE_FP32, e); }
  verify::Block x;
  tw_status_record fault{};
  tw_rope_args args{};
};

TEST(PublicCases, B55PositionsOutsideTheTableAreRefusedRowByRow) {
  const Table table(32, 64);
  const std::vector<std::int32_t> positions = {0, 31, 32, -1, 2147483647};
  Rows rows(5, 2, 64);
  const Rows before(5, 2, 64);
  rows.args.rope = &table.args;
  rows.args.positions = positions.data();
  ASSERT_EQ(tw_rope(&rows.args), TW_OK) << tw_last_error();
  EXPECT_EQ(rows.fault.what, TW_WHAT_POSITION);
  EXPECT_EQ(rows.fault.value, 32);
  for (Index e = 2 * 2 * 64; e < 5 * 2 * 64; ++e) EXPECT_EQ(rows.value(e), before.value(e)) << e;
  for (Index d = 0; d < 32; ++d) {
    const Index e = 2 * 64 + d;  // position 31, head 0
    const double c = table.cosine(31 * 32 + d), s = table.sine(31 * 32 + d);
    EXPECT_NEAR(rows.value(e), before.value(e) * c - before.value(e + 32) * s, 1e-6);
    EXPECT_NEAR(rows.value(e + 32), before.value(e + 32) * c + before.value(e) * s, 1e-6);
  }
  EXPECT_TRUE(rows.x.guards_intact());
}

TEST(PublicCases, B56WidthsThatAreNoPowerOfTwoKeepToTheirColumns) {
  struct Width {
    Index dim, rotary;
  };
  for (const Width w : {Width{96, 96}, Width{80, 80}, Width{8, 6}, Width{80, 34}}) {
    for (const tw_pair_style pairs : {TW_PAIRS_HALVES, TW_PAIRS_INTERLEAVED}) {
      Table table(4, w.rotary);
      table.args.pairs = pairs;
      const std::vector<std::int32_t> positions = {0, 1, 2, 3};
      Rows rows(4, 8, w.dim);
      const Rows before(4, 8, w.dim);
      rows.args.rope = &table.args;
      rows.args.positions = positions.data();
      ASSERT_EQ(tw_rope(&rows.args), TW_OK) << tw_last_error();
      const Index half = w.rotary / 2;
      for (Index n = 0; n < 4 * 8 * w.dim; ++n) {
        const Index d = n % w.dim, row = n - d, position = n / (8 * w.dim);
        const bool halves = pairs == TW_PAIRS_HALVES;
        const Index pair = halves ? d % half : d / 2;
        const bool second = halves ? d >= half : d % 2 != 0;
        const Index low = row + (halves ? pair : 2 * pair),
                    high = row + (halves ? pair + half : 2 * pair + 1);
        const double c = d < w.rotary ? table.cosine(position * half + pair) : 1;
        const double s = d < w.rotary ? table.sine(position * half + pair) : 0;
        const double wanted = d >= w.rotary ? before.value(n)
                              : second      ? before.value(high) * c + before.value(low) * s
                                            : before.value(low) * c - before.value(high) * s;
        ASSERT_NEAR(rows.value(n), wanted, 1e-6) << "dim " << w.dim << " element " << d;
      }
      EXPECT_TRUE(rows.x.guards_intact());
    }
  }
}

TEST(PublicCases, B56OddAndTooWideRotaryDimsAreRefused) {
  for (const std::int32_t rotary : {33, 66, -2}) {
    Table table(4, 64);
    table.args.rotary_dim = rotary;
    Rows rows(4, 1, 64);
    rows.args.rope = &table.args;
    EXPECT_EQ(tw_rope(&rows.args), TW_INVALID_ARGUMENT);
    EXPECT_NE(std::string(tw_last_error()).find("rotary_dim"), std::string::npos)
        << tw_last_error();
  }
}

// The table carries the final magnitude factor, so that no rule about it is guessed.
TEST(PublicCases, B58TheMagnitudeFactorIsTheTables) {
  for (const double factor : {1.2772589, 1.0, 1.5}) {
    const Table table(6, 64, factor);
    Rows rows(1, 1, 64);
    for (Index d = 0; d < 64; ++d) verify::store(rows.x.data(), TW_DTYPE_FP32, d, d == 0 ? 1 : 0);
    const std::int32_t position = 5;
    rows.args.rope = &table.args;
    rows.args.positions = &position;
    ASSERT_EQ(tw_rope(&rows.args), TW_OK) << tw_last_error();
    EXPECT_NEAR(std::hypot(rows.value(0), rows.value(32)), factor, 1e-6 * factor);
  }
}

// Rows far apart, NaN between them, in place and not: the packed bytes, and the gaps as they were.
TEST(PublicCases, B59StridedRowsGiveThePackedBytes) {
  constexpr Index kTokens = 8, kHeads = 5, kDim = 64, kToken = 16384 / 4, kHead = 256;
  const Table table(kTokens, kDim);
  Rows packed(kTokens, kHeads, kDim);
  packed.args.rope = &table.args;
  packed.args.start = nullptr;
  std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 5, 6, 7};
  packed.args.positions = positions.data();
  const Rows source(kTokens, kHeads, kDim);
  ASSERT_EQ(tw_rope(&packed.args), TW_OK) << tw_last_error();
  for (const bool in_place : {true, false}) {
    const verify::Block wide(kTokens * kToken * 4, 4), out(kTokens * kToken * 4, 4);
    const auto place = [](Index row) { return row / kHeads * kToken + row % kHeads * kHead; };
    for (Index e = 0; e < kTokens * kHeads * kDim; ++e)
      verify::store(wide.data(), TW_DTYPE_FP32, place(e / kDim) + e % kDim, source.value(e));
    tw_rope_args args = packed.args;
    args.x = wide.data();
    args.x_batch_stride = args.x_token_stride = kToken;
    args.x_head_stride = kHead;
    args.out = in_place ? nullptr : out.data();
    args.out_batch_stride = args.out_token_stride = kToken;
    args.out_head_stride = kHead;
    ASSERT_EQ(tw_rope(&args), TW_OK) << tw_last_error();
    const verify::Block& result = in_place ? wide : out;
    for (Index e = 0; e < kTokens * kHeads * kDim; ++e) {
      const Index at_result = place(e / kDim) + e % kDim;
      ASSERT_EQ(verify::load(result.data(), TW_DTYPE_FP32, at_result), packed.value(e)) << e;
      verify::store(result.data(), TW_DTYPE_FP32, at_result, 0);
      std::fill_n(result.data() + 4 * at_result, 4, verify::kPoison);
    }
    EXPECT_TRUE(result.is_all(verify::kPoison)) << "gaps changed";
    EXPECT_TRUE(result.guards_intact());
  }
}

}  // namespace
}  // namespace tilewise::tests
