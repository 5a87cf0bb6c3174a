// Public bug reports about who sees what: alignment, windows, masks, empty rows. Names carry the
// ids of docs/cases.md.
#include <algorithm>
#include <cmath>

#include "tests/support/attend.h"

namespace tilewise::tests {
namespace {

using verify::MaskKind;
using verify::Request;
using verify::Storage;

// A census of a causal case whose row i of request r must see count(r, i) keys, in every variant.
void expect_counts(Case c, const std::function<Index(Index, Index)>& count) {
  make_census(c);
  const Problem p(c);
  for_each_answer(p, [&](const Answer& answer) {
    expect_census(p, answer, [&](Index r, Index i, Index) { return count(r, i); });
  });
}

Case causal_case(Index q_heads, Index kv_heads, Index head_dim, std::vector<Request> requests) {
  Case c = make_case(TW_DTYPE_BF16, q_heads, kv_heads, head_dim, std::move(requests));
  c.causal = true;
  return c;
}

TEST(PublicCases, B05CausalIsAlignedToTheLastKey) {
  for (const Request request : {Request{5, 12}, Request{1, 12}, Request{2, 5}, Request{3, 5}}) {
    for (const tw_row_class row_class : {TW_CLASS_D, TW_CLASS_P}) {
      Case c = causal_case(2, 2, 64, {request});
      c.row_class = row_class;
      expect_counts(c, [&](Index, Index i) { return i + request.kv_len - request.q_len + 1; });
    }
  }
}

TEST(PublicCases, B08EmptyRequestsGiveZeroAndLeaveOthersAlone) {
  for (const bool uneven : {false, true}) {
    for (const Storage storage : {Storage::kContiguous, Storage::kCsr}) {
      std::vector<Request> requests = {
          {uneven ? 3 : 1, 0}, {uneven ? 2 : 1, 5}, {uneven ? 4 : 1, 0}, {1, 33}};
      Case c = make_case(TW_DTYPE_BF16, 8, 2, 128, requests);
      c.ragged = uneven;
      c.storage = storage;
      const Problem p(c);
      expect_right(p);
      Case rest = c;
      rest.requests = {{requests[1].q_len, 5, 1}, {1, 33, 3}};
      const Problem q(rest);
      for (const int variant : usable_variants(p)) {
        const Answer all = verify::attend(p, {variant}), full = verify::attend(q, {variant});
        for (const Index r : {0, 2}) {
          for (Index i = 0; i < p.q_len(r); ++i) expect_empty_row(p, all, r, i);
        }
        EXPECT_EQ(request_bytes(p, all, 1), request_bytes(q, full, 0));
        EXPECT_EQ(request_bytes(p, all, 3), request_bytes(q, full, 1));
      }
    }
  }
}

TEST(PublicCases, B17FullyMaskedRowsAreZeroWithoutNaN) {
  for (const tw_dtype type : all_types()) {
    Case c = make_case(type, 1, 1, 8, {{4, 4}});
    c.mask = MaskKind::kShared;
    Problem small(c);
    small.keep = [](Index, Index, Index i, Index) { return i != 1; };
    small.settle_seen();
    expect_right(small);
    for_each_answer(small, [&](const Answer& answer) { expect_empty_row(small, answer, 0, 1); });
    Case wide = make_case(type, 2, 1, 64, {{6, 200}});
    wide.mask = MaskKind::kShared;
    wide.causal = true;
    wide.positions = verify::Positions::kStart;
    wide.requests.front().q_len = 200;  // row 0 sees key 0 only, which its mask hides
    Problem p(wide);
    p.keep = [](Index, Index, Index i, Index j) { return i != 5 && !(i == 0 && j <= 3); };
    p.settle_seen();
    for_each_answer(p, [&](const Answer& answer) {
      expect_empty_row(p, answer, 0, 5);
      expect_empty_row(p, answer, 0, 0);
    });
  }
}

TEST(PublicCases, B20KeysOfTheCacheAndAppendedOnesCountOnce) {
  for (const bool causal : {false, true}) {
    Case c = make_case(TW_DTYPE_BF16, 8, 8, 128, {{196, 452}});
    c.causal = causal;
    c.append = verify::Append::kSame;
    c.storage = Storage::kBlockTable;
    expect_counts(c, [&](Index, Index i) { return causal ? 257 + i : 452; });
    expect_right(Problem(c));
  }
}

TEST(PublicCases, B34EveryRequestHasItsOwnWindowOffset) {
  for (const Index q_len : {1, 4}) {
    Case c = causal_case(4, 2, 64, {{q_len, 100}, {q_len, 7}});
    c.window_left = 16;
    expect_counts(c, [&](Index r, Index i) { return r == 0 ? 17 : 8 - q_len + i; });
    expect_right(Problem(c));
  }
}

TEST(PublicCases, B35EveryDraftedRowHasItsOwnWindowStart) {
  Case c = causal_case(32, 16, 256, {{8, 1100}});
  c.storage = Storage::kBlockTable;
  c.window_left = 1023;
  expect_counts(c, [](Index, Index) { return 1024; });
  Case ragged = causal_case(4, 2, 256, {{8, 1100}, {0, 1050}, {3, 1020}, {1, 1099}});
  ragged.ragged = true;
  ragged.storage = Storage::kCsr;
  ragged.window_left = 1023;
  expect_right(Problem(ragged));
}

TEST(PublicCases, B40AWindowOfWSeesWKeysBesidesItself) {
  for (const Index left : {8, 0, 1, 63, 64, -1}) {
    for (const Index q_len : {64, 1}) {
      Case c = causal_case(2, 2, 64, {{q_len, 64}});
      c.window_left = left;
      expect_counts(c, [&](Index, Index i) {
        const Index seen = 64 - q_len + i + 1;
        return left < 0 ? seen : std::min(seen, left + 1);
      });
    }
  }
}

TEST(PublicCases, B44RowsBeforeTheFirstKeySeeNothing) {
  for (const Index kv_len : {3, 0}) {
    for (const Storage storage : {Storage::kCsr, Storage::kPacked}) {
      Case c = causal_case(4, 2, 128, {{8, kv_len}});
      c.storage = storage;
      expect_right(Problem(c));
      expect_counts(c, [&](Index, Index i) { return std::max<Index>(i - 7 + kv_len, 0); });
      const Problem p(c);
      for_each_answer(p, [&](const Answer& answer) {
        for (Index i = 0; i < 8 - kv_len; ++i) expect_empty_row(p, answer, 0, i);
      });
    }
  }
}

TEST(PublicCases, B52DecodeHonoursTheWindow) {
  Case c = causal_case(8, 2, 256, {{1, 600}});
  c.storage = Storage::kBlockTable;
  c.window_left = 512;
  expect_counts(c, [](Index, Index) { return 513; });
  Case prefill = c;
  prefill.requests = {{40, 600}};
  expect_counts(prefill, [](Index, Index i) { return std::min<Index>(561 + i, 513); });
}

TEST(PublicCases, B64LeftPaddingOfAWholeBlockGivesNoNaN) {
  for (const tw_dtype type : {TW_DTYPE_BF16, TW_DTYPE_FP32}) {
    Case c = make_case(type, 32, 32, 128, {{33, 33}, {33, 33}});
    c.causal = true;
    c.mask = MaskKind::kPerRequest;
    Problem p(c);
    p.keep = [](Index r, Index, Index, Index j) { return r == 0 || j >= 27; };
    p.settle_seen();
    expect_right(p);
    for_each_answer(p, [&](const Answer& answer) {
      for (Index i = 0; i < 27; ++i) expect_empty_row(p, answer, 1, i);
    });
  }
  // A band far from the first keys: whole leading blocks are masked.
  Case band = make_case(TW_DTYPE_FP32, 1, 1, 64, {{640, 640}});
  band.mask = MaskKind::kShared;
  Problem p(band);
  p.keep = [](Index, Index, Index i, Index j) { return std::abs(i - j) <= 10; };
  p.settle_seen();
  expect_right(p);
}

TEST(PublicCases, B80ATwoSidedWindowOnAShortSequence) {
  Case c = make_case(TW_DTYPE_BF16, 1, 1, 64, {{1, 2}});
  c.storage = Storage::kBlockTable;
  c.page_size = 128;
  c.window_left = 3;
  c.window_right = 2;
  make_census(c);
  Problem p(c);
  p.set_k([](Index, Index, Index, Index) { return 0.0; });
  p.set_v([](Index, Index, Index, Index) { return 1.0; });
  for_each_answer(p, [&](const Answer& answer) {
    for (const float o : answer.o) EXPECT_EQ(o, 1.0f);
    EXPECT_EQ(answer.lse[0], static_cast<float>(std::log(2.0)));
  });
}

TEST(PublicCases, B89AWindowInAPrefillCountsExactly) {
  Case c = causal_case(2, 2, 64, {{64, 300}});
  c.window_left = 40;
  expect_counts(c, [](Index, Index i) { return std::min<Index>(237 + i, 41); });
}

// Chunks of a prompt over a cache whose old pages were given back, against one prefill of the
// whole.
TEST(PublicCases, B94AChunkedWindowedPrefillLosesNoKey) {
  constexpr Index kLeft = 32;
  Case c = causal_case(4, 2, 64, {{138, 138, 0}});
  c.window_left = kLeft;
  c.o_type = TW_DTYPE_FP32;
  c.row_class = TW_CLASS_P;
  const Problem whole(c);
  const verify::Stream stream(c.seed, verify::kQ);
  for (const int variant : usable_variants(whole)) {
    const Answer expected = verify::attend(whole, {variant});
    Index end = 0;
    for (const Index chunk : {20, 33, 64, 1, 20}) {
      const Index begin = end;
      end += chunk;
      Case part = c;
      part.requests = {{chunk, end, 0}};
      part.storage = Storage::kBlockTable;
      part.released = begin >= 2 * 16 + kLeft;  // two pages, which no row sees any more
      Problem p(part);
      p.set_q([&](Index, Index i, Index h, Index d) {
        return stream.normal(((begin + i) * 4 + h) * 64 + d);
      });
      const Answer answer = verify::attend(p, {variant});
      EXPECT_EQ(row_bytes(p, answer, 0, chunk), row_bytes(whole, expected, begin, end))
          << "rows from " << begin;
    }
  }
}

TEST(PublicCases, B95ThePrefixMayEndInsideATile) {
  for (const Index past : {37, 63, 64, 65}) {
    Case c = causal_case(4, 2, 64, {{91, past + 91}});
    c.storage = Storage::kBlockTable;
    c.append = verify::Append::kConverted;
    expect_right(Problem(c));
  }
}

TEST(PublicCases, B107MasksTakeAnyStrideAndBroadcast) {
  for (const MaskKind mask :
       {MaskKind::kShared, MaskKind::kPerRequest, MaskKind::kPerHead, MaskKind::kRagged}) {
    for (const Index kv_len : {43, 77, 80}) {
      Case c = make_case(TW_DTYPE_FP16, 8, 8, 32, {{16, kv_len}, {16, kv_len}});
      c.mask = mask;
      expect_right(Problem(c));
    }
  }
}

}  // namespace
}  // namespace tilewise::tests
