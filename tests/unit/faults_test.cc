// Which fault of an attention call is recorded: only what matters to a row, the first in reading
// order, and no other.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cpu/backend.h"
#include "tests/unit/attention_call.h"

namespace tilewise {
namespace {

using core::FaultCode;
using core::FaultWhat;
using testing::AttentionCall;
using testing::CallShape;

std::string text_of(const cpu::FaultRecord& f) {
  return "code " + std::to_string(f.code) + " what " + std::to_string(f.what) + " request " +
         std::to_string(f.request) + " row " + std::to_string(f.row) + " value " +
         std::to_string(f.value);
}

std::string recorded(const core::Attention& a) {
  cpu::FaultRecord record{};
  cpu::record_attention_faults(a, &record);
  return text_of(record);
}

std::string fault(FaultCode code, FaultWhat what, std::int32_t request, std::int32_t row,
                  std::int64_t value) {
  return text_of(
      {static_cast<std::int32_t>(code), static_cast<std::int32_t>(what), request, row, value});
}

const char kNone[] = "code 0 what 0 request 0 row 0 value 0";

AttentionCall make_call(std::int32_t batch, std::int64_t q_len, std::int64_t keys) {
  CallShape s;
  s.batch = batch;
  s.q_len = q_len;
  s.keys = keys;
  return AttentionCall(s);
}

TEST(Faults, ACleanCallRecordsNothingAndNoRecordIsFine) {
  const AttentionCall call = make_call(2, 3, 8);
  EXPECT_EQ(recorded(call.a), kNone);
  cpu::record_attention_faults(call.a, nullptr);
}

TEST(Faults, LengthsOutsideTheirBound) {
  AttentionCall call = make_call(2, 1, 8);
  std::vector<std::int32_t> lens{8, 9};
  call.a.kv.lengths = core::KvLengths::kPerRequest;
  call.a.kv.kv_lens = lens.data();
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kKvLen, 1, -1, 9));
  lens[0] = -3;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kNegative, FaultWhat::kKvLen, 0, -1, -3));
}

TEST(Faults, TheFirstOneStays) {
  AttentionCall call = make_call(1, 1, 8);
  const std::int32_t length = -1;
  call.a.kv.lengths = core::KvLengths::kPerRequest;
  call.a.kv.kv_lens = &length;
  cpu::FaultRecord record{2, 11, 5, 6, 7};
  cpu::record_attention_faults(call.a, &record);
  EXPECT_EQ(text_of(record), text_of({2, 11, 5, 6, 7}));
}

TEST(Faults, FallingAndTooLongQueryRanges) {
  AttentionCall call = make_call(2, 2, 8);
  std::vector<std::int32_t> indptr{0, 3, 2};
  call.a.q_indptr = indptr.data();
  call.a.max_q_len = 3;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kDisagrees, FaultWhat::kQIndptr, 1, -1, 2));
  indptr = {0, 4, 4};
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kQIndptr, 0, -1, 4));
}

TEST(Faults, PageIdsCountOnlyWhereARowSeesThem) {
  AttentionCall call = make_call(1, 1, 12);
  call.use_pages(2, {0, 99, 1, 2, 3, -5}, 6);
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kPageId, 0, 1, 99));
  call.a.rule.has_left = true;
  call.a.rule.window_left = 3;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kNegative, FaultWhat::kPageId, 0, 5, -5));
  call.a.rule.causal = true;
  const std::int32_t start = 9;
  call.a.q_start = &start;
  EXPECT_EQ(recorded(call.a), kNone);
  call.a.rule.window_left = 6;  // key 3 is in slot 1
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kPageId, 0, 1, 99));
}

TEST(Faults, HolesAndReleasedPagesAreExpected) {
  AttentionCall call = make_call(1, 1, 8);
  call.use_pages(2, {-1, 0, -1}, 3);
  const std::int32_t first_page = 1;
  call.a.kv.first_page = &first_page;
  EXPECT_EQ(recorded(call.a), kNone);
}

TEST(Faults, GapsBetweenExplicitPositionsAreNotSeen) {
  AttentionCall call = make_call(1, 2, 12);
  call.use_pages(2, {0, 1, 99, 2, 3, 4}, 6);
  std::vector<std::int32_t> positions{1, 11};
  call.a.q_positions = positions.data();
  call.a.rule.causal = call.a.rule.has_left = true;
  call.a.rule.window_left = 3;
  EXPECT_EQ(recorded(call.a), kNone);
  positions[1] = 8;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kPageId, 0, 2, 99));
}

TEST(Faults, AppendedRowsNeedTheirPagesToo) {
  AttentionCall call = make_call(1, 1, 8);
  call.use_pages(2, {0, 1, 2, 99}, 4);
  call.a.rule.causal = true;
  std::int32_t start = 0;
  call.a.q_start = &start;
  EXPECT_EQ(recorded(call.a), kNone);
  call.a.append.k = call.a.append.v = call.k.data();
  start = 7;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kPageId, 0, 3, 99));
}

TEST(Faults, AppendAgreesWithItsStartAndItsLength) {
  AttentionCall call = make_call(2, 3, 8);
  call.a.append.k = call.a.append.v = call.k.data();
  std::vector<std::int32_t> start{5, 6};
  call.a.q_start = start.data();
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kDisagrees, FaultWhat::kQStart, 1, -1, 6));
  start[1] = 5;
  EXPECT_EQ(recorded(call.a), kNone);
  call.a.q_start = nullptr;
  call.a.kv.kv_len = 2;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kNegative, FaultWhat::kPosition, 0, 0, -1));
}

TEST(Faults, MaskRowsStayInsideTheirBytes) {
  AttentionCall call = make_call(2, 3, 8);
  const std::vector<std::uint8_t> bytes(48, 1);
  std::vector<std::int64_t> offset{0, 24};
  call.a.mask.data = bytes.data();
  call.a.mask.width = 8;
  call.a.mask.row_stride = 8;
  call.a.mask.offset = offset.data();
  call.a.mask.bytes = 48;
  EXPECT_EQ(recorded(call.a), kNone);
  offset[1] = 25;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kMask, 1, 2, 25));
  offset[0] = -1;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kNegative, FaultWhat::kMask, 0, 0, -1));
  call.a.mask.offset = nullptr;
  call.a.mask.bytes = 23;
  EXPECT_EQ(recorded(call.a), fault(FaultCode::kAboveBound, FaultWhat::kMask, 0, 2, 0));
  call.a.mask.bytes = 0;  // extent not stated, not checked
  EXPECT_EQ(recorded(call.a), kNone);
}

}  // namespace
}  // namespace tilewise
