// The contract of bits, compared byte by byte. Each test states a line of the contract; ctest runs
// this file once for every instruction set that the machine offers.
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/attend.h"

namespace tilewise::tests {
namespace {

using verify::Order;
using verify::Storage;

// One problem of each kind that has its own path: class D and P, short and many chunks, all
// features of a logit.
std::vector<Case> subjects() {
  std::vector<Case> cases;
  for (const tw_dtype type : all_types()) {
    cases.push_back(make_case(type, 8, 2, 64, {{1, 777}}));
    cases.push_back(make_case(type, 4, 4, 40, {{4, 300}}));
    cases.push_back(make_case(type, 4, 1, 128, {{40, 200}}));
    cases.push_back(make_case(type, 4, 2, 32, {{19, 140}}));
    for (Case& c : cases) c.causal = true;
    cases[cases.size() - 3].window_left = 130;
    cases.back().softcap = 20;
    cases.back().alibi = verify::Alibi::kPerHead;
    cases.back().sinks = true;
  }
  return cases;
}

void for_each_subject(const std::function<void(const Case&, int)>& test) {
  for (const Case& c : subjects()) {
    for (const int variant : usable_variants(Problem(c))) {
      SCOPED_TRACE("variant " + std::to_string(variant) + ": " + verify::describe(c));
      test(c, variant);
    }
  }
}

std::vector<std::uint8_t> bytes_of(const Case& c, const Choice& choice) {
  const Answer answer = verify::attend(Problem(c), choice);
  EXPECT_EQ(answer.status, TW_OK) << answer.error;
  EXPECT_EQ(answer.damage, "");
  return answer.bytes;
}

TEST(BitsLine1, TheSameCallTwiceGivesTheSameBytes) {
  for_each_subject([](const Case& c, int variant) {
    const Problem p(c);
    verify::Call call(p);
    const auto first = call.run({variant}).bytes;
    for (int n = 0; n < 5; ++n) EXPECT_EQ(call.run({variant}).bytes, first);
    EXPECT_EQ(bytes_of(c, {variant}), first);
  });
}

TEST(BitsLine3, ContiguousPackedAndPagedGiveTheSameBytes) {
  for_each_subject([](const Case& c, int variant) {
    const auto plain = bytes_of(c, {variant});
    for (const Storage storage :
         {Storage::kPacked, Storage::kCsr, Storage::kBlockTable, Storage::kTokenTable}) {
      for (const Order order : {Order::kTokenMajor, Order::kHeadMajor, Order::kInterleaved}) {
        Case other = c;
        other.storage = storage;
        other.order = order;
        EXPECT_EQ(bytes_of(other, {variant}), plain) << verify::describe(other);
      }
    }
  });
}

TEST(BitsLine3, EveryPageSizeAndPermutationGivesTheSameBytes) {
  for_each_subject([](const Case& c, int variant) {
    Case paged = c;
    paged.storage = Storage::kCsr;
    const auto plain = bytes_of(c, {variant});
    for (const Index size : {1, 2, 3, 7, 13, 16, 48, 63, 64, 65, 128, 256, 1000}) {
      paged.page_size = size;
      paged.pool_seed += 1;
      EXPECT_EQ(bytes_of(paged, {variant}), plain) << "page size " << size;
    }
  });
}

// The request under test among neighbours of every kind, at every place of the batch.
TEST(BitsLine4, ARequestIsTheSameAloneAndInAnyBatch) {
  const std::vector<verify::Request> neighbours = {
      {1, 1, 5}, {1, 2000, 6}, {30, 90, 7}, {0, 64, 8}, {3, 0, 9}};
  for_each_subject([&](const Case& c, int variant) {
    Case alone = c;
    alone.ragged = true;
    alone.requests.front().tag = 3;
    const auto expected = bytes_of(alone, {variant});
    for (std::size_t place = 0; place <= neighbours.size(); ++place) {
      Case batch = alone;
      batch.requests = neighbours;
      batch.requests.insert(batch.requests.begin() + static_cast<std::ptrdiff_t>(place),
                            alone.requests.front());
      const Problem p(batch);
      const Answer answer = verify::attend(p, {variant});
      EXPECT_EQ(request_bytes(p, answer, static_cast<Index>(place)), expected) << "place " << place;
    }
    alone.ragged = false;
    EXPECT_EQ(bytes_of(alone, {variant}), expected) << "dense";
  });
}

TEST(BitsLine4, ManyEqualRequestsAreEqual) {
  for_each_subject([](const Case& c, int variant) {
    Case batch = c;
    batch.requests.assign(9, {c.requests.front().q_len, c.requests.front().kv_len, 0});
    const Problem p(batch);
    const Answer answer = verify::attend(p, {variant});
    for (Index r = 1; r < 9; ++r)
      EXPECT_EQ(request_bytes(p, answer, r), request_bytes(p, answer, 0)) << r;
  });
}

TEST(BitsLine5, BoundsAndWorkspaceContentsChangeNothing) {
  for_each_subject([](const Case& c, int variant) {
    const auto expected = bytes_of(c, {variant});
    for (const std::uint8_t fill : std::vector<std::uint8_t>{0x00, 0x3C, 0x7F, 0xFF}) {
      EXPECT_EQ(bytes_of(c, {variant, TW_DTYPE_DEFAULT, 0, fill}), expected)
          << "workspace of " << int{fill};
    }
    Case loose = c;
    loose.slack = true;
    for (const bool ragged : {false, true}) {
      for (const Storage storage : {Storage::kContiguous, Storage::kBlockTable}) {
        loose.ragged = ragged;
        loose.storage = storage;
        EXPECT_EQ(bytes_of(loose, {variant}), expected) << verify::describe(loose);
      }
    }
  });
}

// Bounds far beyond the lengths: what a graph captured for the longest context would use.
TEST(BitsLine5, AHugeBoundChangesNothing) {
  for_each_subject([](const Case& c, int variant) {
    Case paged = c;
    paged.storage = Storage::kBlockTable;
    const Problem p(paged);
    verify::Call call(p);
    const auto expected = call.run({variant}).bytes;
    for (const std::int32_t bound : {1 << 14, 1 << 20, INT32_MAX}) {
      call.args().max_kv_len = bound;
      EXPECT_EQ(call.run({variant}).bytes, expected) << "max_kv_len " << bound;
    }
  });
}

// On the CPU a stream is a calling thread, and on CUDA every thread has a stream here: calls from
// several at once do not see each other.
TEST(BitsLine6, ConcurrentCallersGetTheSameBytes) {
  const std::vector<Case> cases = subjects();
  std::vector<std::vector<std::uint8_t>> expected, got(cases.size());
  for (const Case& c : cases) expected.push_back(bytes_of(c, {}));
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (std::size_t n = caller; n < cases.size(); n += 3)
        got[n] = verify::attend(Problem(cases[n]), {0, TW_DTYPE_DEFAULT, 2}).bytes;
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (std::size_t n = 0; n < cases.size(); ++n)
    EXPECT_EQ(got[n], expected[n]) << verify::describe(cases[n]);
}

// A prompt of `total` tokens, of which this piece computes rows [begin, end).
Problem piece(const Case& whole, Index begin, Index end) {
  Case c = whole;
  c.requests = {{end - begin, end, 0}};
  Problem p(c);
  const verify::Stream stream(whole.seed, verify::kQ);
  p.set_q([&](Index, Index i, Index h, Index d) {
    return stream.normal(((begin + i) * c.q_heads + h) * c.head_dim + d);
  });
  return p;
}

void expect_pieces_equal(const Case& c, int variant, const std::vector<Index>& cuts) {
  const Problem whole = piece(c, 0, cuts.back());
  const Answer expected = verify::attend(whole, {variant});
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    const Problem part = piece(c, cuts[n], cuts[n + 1]);
    const Answer answer = verify::attend(part, {variant});
    ASSERT_EQ(answer.status, TW_OK) << answer.error;
    EXPECT_EQ(row_bytes(part, answer, 0, part.rows()),
              row_bytes(whole, expected, cuts[n], cuts[n + 1]))
        << "rows " << cuts[n] << " to " << cuts[n + 1];
  }
}

TEST(BitsLine7, APromptInPiecesGivesTheSameBytes) {
  for_each_subject([](const Case& c, int variant) {
    Case prompt = c;
    prompt.row_class = TW_CLASS_P;
    expect_pieces_equal(prompt, variant, {0, 1, 3, 20, 63, 64, 65, 130, 190});
    expect_pieces_equal(prompt, variant, {0, 64, 128, 192});
    prompt.row_class = TW_CLASS_AUTO;  // pieces long enough to be of class P by themselves
    expect_pieces_equal(prompt, variant, {0, 17, 70, 128, 190});
  });
}

TEST(BitsLine8, GarbageThatNoRowSeesChangesNothing) {
  for_each_subject([](const Case& c, int variant) {
    for (const Storage storage : {Storage::kContiguous, Storage::kBlockTable}) {
      Case dirty = c;
      dirty.storage = storage;
      dirty.mask = verify::MaskKind::kPerRequest;
      dirty.requests.front().tag = 1;  // its first keys are masked for every row
      const auto expected = bytes_of(dirty, {variant});
      for (const std::uint8_t garbage : std::vector<std::uint8_t>{0x00, 0x7B, 0x7F, 0xFB}) {
        dirty.garbage = garbage;
        EXPECT_EQ(bytes_of(dirty, {variant}), expected) << "filled with " << int{garbage};
      }
    }
  });
}

TEST(BitsLine9, ThreadsAndHooksChangeNothing) {
  if (verify::on_cuda()) GTEST_SKIP() << "about threads of the CPU";
  for_each_subject([](const Case& c, int variant) {
    const auto expected = bytes_of(c, {variant});
    for (const int threads : {1, 2, 3, 7, 64}) {
      EXPECT_EQ(bytes_of(c, {variant, TW_DTYPE_DEFAULT, threads}), expected)
          << threads << " threads";
      Case hooked = c;
      hooked.hook = true;
      EXPECT_EQ(bytes_of(hooked, {variant, TW_DTYPE_DEFAULT, threads}), expected)
          << threads << " tasks of a hook";
    }
  });
}

TEST(BitsLine9, SharingChangesNothing) {
  for (const Case& c : subjects()) {
    const auto twins = usable_twins(Problem(c));
    EXPECT_FALSE(twins.empty());
    for (const auto& [variant, twin] : twins)
      EXPECT_EQ(bytes_of(c, {variant}), bytes_of(c, {twin}))
          << "variant " << variant << ": " << verify::describe(c);
  }
}

TEST(BitsLine9, AutoGivesTheBytesOfAVariantThatCanBeForced) {
  for (const Case& c : subjects()) {
    const auto chosen = bytes_of(c, {});
    bool met = false;
    for (const int variant : usable_variants(Problem(c)))
      met = met || bytes_of(c, {variant}) == chosen;
    EXPECT_TRUE(met) << verify::describe(c);
  }
}

// Controls: these comparisons are able to differ. Classes D and P fold in another order, and so
// does a shorter range.
TEST(BitsControl, AnotherFoldOrderChangesBytes) {
  Case c = make_case(TW_DTYPE_FP32, 8, 1, 64, {{1, 1500}});
  const auto chunked = bytes_of(c, {verify::kSimdSelf});
  c.row_class = TW_CLASS_P;
  EXPECT_NE(bytes_of(c, {verify::kSimdSelf}), chunked);
}

TEST(BitsControl, SeenGarbageChangesBytes) {
  Case c = make_case(TW_DTYPE_FP32, 2, 1, 32, {{1, 70}});
  c.window_left = 20;
  const auto expected = bytes_of(c, {verify::kSimdSelf});
  const Problem p(c);
  verify::Call call(p);
  call.args().window_left = 21;  // one key more: a slot filled with NaN
  EXPECT_NE(call.run({verify::kSimdSelf}).bytes, expected);
}

}  // namespace
}  // namespace tilewise::tests
