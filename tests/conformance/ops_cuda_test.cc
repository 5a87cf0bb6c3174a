// The small operations on a CUDA device against the same calls on the CPU: the same bytes where
// only single IEEE operations are used, else as near as two good exponentials are.
#include "tests/support/ops_call.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr tw_dtype kTypes[] = {TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32};

class OpsCuda : public DeviceTest {};

Bytes numbers(tw_dtype type, Index elements, std::uint64_t id = 0) {
  return drawn(77, static_cast<verify::TensorId>(id), type, elements);
}

Bytes sentinels(tw_dtype type, Index elements) {
  return Bytes(static_cast<std::size_t>(elements * verify::element_bytes(type)), 0xFF);
}

// Every 7th element becomes one of the numbers that conversions stumble over.
Bytes odd_numbers(tw_dtype type, Index elements) {
  constexpr double kOdd[] = {0.0,     -0.0,  1e-7,     -6e-8,     3e-41,
                             65520.0, -1e38, INFINITY, -INFINITY, NAN};
  Bytes bytes = numbers(type, elements);
  for (Index i = 0; i < elements; i += 7) {
    verify::store(bytes.data(), type, i, kOdd[static_cast<std::size_t>(i / 7 % 10)]);
  }
  return bytes;
}

// Rows of 4 requests, one of them empty, and a row that no request has.
const Ids kIndptr = {0, 4, 4, 9, 12};
constexpr Index kRows = 13;

struct RopeCase {
  tw_dtype type = TW_DTYPE_BF16, table = TW_DTYPE_FP32;
  std::int32_t heads = 3, head_dim = 128, rotary_dim = 128;
  tw_pair_style pairs = TW_PAIRS_HALVES;
  Index step = 1;  // of the table's elements
  Index pad = 0;   // elements between rows
  bool ragged = true, in_place = false;
};

struct RopeCall {
  explicit RopeCall(const RopeCase& which, Bytes x_bytes = {})
      : c(which), x(std::move(x_bytes)), out(sentinels(c.type, kRows * token())) {
    if (x.empty()) x = numbers(c.type, kRows * token());
    cosine = numbers(c.table, kTableRows * table_row(), 1);
    sine = numbers(c.table, kTableRows * table_row(), 2);
    for (std::int32_t i = 0; i < kRows; ++i) positions.push_back(i * 17 % kTableRows);
  }
  Index token() const { return c.heads * (c.head_dim + c.pad); }
  Index table_row() const { return c.rotary_dim / 2 * c.step + 8; }

  tw_status operator()(Place& at) const {
    tw_rope_table table{};
    table.struct_size = sizeof table;
    table.dtype = c.table;
    table.cos = at.of(cosine);
    table.sin = at.of(sine);
    table.cos_row_stride = table.sin_row_stride = table_row();
    table.cos_element_stride = table.sin_element_stride = c.step;
    table.rows = kTableRows;
    table.rotary_dim = c.rotary_dim;
    table.pairs = c.pairs;
    tw_rope_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.dtype = c.type;
    args.heads = c.heads;
    args.head_dim = c.head_dim;
    args.batch = c.ragged ? static_cast<std::int32_t>(kIndptr.size()) - 1 : kRows;
    args.q_indptr = c.ragged ? at.of(kIndptr) : nullptr;
    args.total_q = c.ragged ? kRows : 0;
    args.q_len = c.ragged ? 0 : 1;
    args.x = at.of(x);
    args.out = c.in_place ? nullptr : at.of(out);
    args.x_head_stride = args.out_head_stride = c.head_dim + c.pad;
    args.x_token_stride = args.out_token_stride = token();
    args.x_batch_stride = args.out_batch_stride = c.ragged ? 0 : token();
    args.rope = &table;
    args.positions = by_start ? nullptr : at.of(positions);
    args.start = by_start ? at.of(positions) : nullptr;
    args.status = at.status();
    return tw_rope(&args);
  }

  static constexpr std::int32_t kTableRows = 40;
  RopeCase c;
  Bytes x, out, cosine, sine;
  Ids positions;
  bool by_start = false;
};

TEST_F(OpsCuda, RopeHasTheBytesOfTheCpuInEveryShape) {
  for (const tw_dtype type : kTypes) {
    for (const tw_pair_style pairs : {TW_PAIRS_HALVES, TW_PAIRS_INTERLEAVED}) {
      for (const auto& [head_dim, rotary_dim] :
           {std::pair{128, 128}, {256, 64}, {72, 24}, {64, 0}, {512, 512}, {8, 2}}) {
        for (const Index pad : {0, 8, 5}) {
          RopeCase c;
          c.type = type;
          c.pairs = pairs;
          c.head_dim = head_dim;
          c.rotary_dim = rotary_dim;
          c.pad = pad;
          SCOPED_TRACE(::testing::Message() << type << " " << head_dim << " pad " << c.pad);
          expect_same(RopeCall(c));
          c.in_place = true;
          c.ragged = pad != 0;
          expect_same(RopeCall(c));
        }
      }
    }
  }
}

TEST_F(OpsCuda, RopeReadsAnyTableAndStart) {
  for (const tw_dtype table : {TW_DTYPE_BF16, TW_DTYPE_FP32}) {
    for (const Index step : {1, 2}) {
      RopeCase c;
      c.table = table;
      c.step = step;
      RopeCall call(c);
      call.by_start = true;
      expect_same(call);
    }
  }
  for (const tw_dtype type : kTypes) {
    RopeCase c;
    c.type = type;
    const RopeCall call(c, odd_numbers(type, kRows * c.heads * c.head_dim));
    expect_near(call, 4, type, {0, 0});
  }
}

TEST_F(OpsCuda, RopeLeavesRowsOutsideTheTable) {
  for (const std::int32_t bad : {-1, RopeCall::kTableRows, INT32_MAX, INT32_MIN}) {
    RopeCall call(RopeCase{});
    call.positions[6] = bad;
    EXPECT_EQ(expect_same(call).fault.what, TW_WHAT_POSITION);
  }
}

enum class Form { kDense, kRagged, kPairs, kSlots };
enum class Layout { kContiguous, kPacked, kPages, kPagesByHead };

struct AppendCase {
  tw_dtype type = TW_DTYPE_BF16, kv_type = TW_DTYPE_BF16;
  Form form = Form::kRagged;
  Layout layout = Layout::kPages;
  std::int32_t k_dim = 64, v_dim = 32;
};

struct AppendCall {
  static constexpr std::int32_t kBatch = 4, kHeads = 3, kPage = 4, kPages = 30, kWidth = 6;
  static constexpr std::int32_t kPool = 120;  // rows of the cache, in every layout

  explicit AppendCall(const AppendCase& which)
      : c(which),
        new_k(odd_numbers(c.type, kRows * kHeads * c.k_dim)),
        new_v(numbers(c.type, kRows * kHeads * c.v_dim, 4)),
        k(sentinels(c.kv_type, kPool * kHeads * c.k_dim)),
        v(sentinels(c.kv_type, kPool * kHeads * c.v_dim)) {
    for (std::int32_t i = 0; i < kBatch * kWidth; ++i) table.push_back(i * 11 % kPages);
    table[1] = -1;  // keys 4 to 7 of the first request
    for (std::int32_t i = 0; i < kRows; ++i) {
      slots.push_back(i % 5 == 3 ? -1 : i * 23 % kPool);
      requests.push_back(i % 3 == 1 ? 3 : i % 3);
      positions.push_back(i / 3);
    }
  }

  tw_kv_cache cache(Place& at) const {
    tw_kv_cache kv{};
    kv.struct_size = sizeof kv;
    kv.k = at.of(k);
    kv.v = at.of(v);
    const bool paged = c.layout >= Layout::kPages, by_head = c.layout == Layout::kPagesByHead;
    const Index rows = paged ? kPage : kPool / kBatch;
    kv.k_head_stride = by_head ? rows * c.k_dim : c.k_dim;
    kv.v_head_stride = by_head ? rows * c.v_dim : c.v_dim;
    kv.k_token_stride = by_head ? c.k_dim : kHeads * c.k_dim;
    kv.v_token_stride = by_head ? c.v_dim : kHeads * c.v_dim;
    kv.k_batch_stride = rows * kHeads * c.k_dim;
    kv.v_batch_stride = rows * kHeads * c.v_dim;
    kv.kv_capacity = c.layout == Layout::kContiguous ? rows : paged ? 0 : kPool;
    if (paged) {
      kv.page_size = kPage;
      kv.num_pages = kPages;
    }
    if (c.form == Form::kSlots) return kv;
    if (c.layout == Layout::kPacked) {
      kv.kv_indptr = at.of(kv_indptr);
    } else {
      kv.kv_lens = at.of(kv_lens);
    }
    if (paged) {
      kv.page_table = at.of(table);
      kv.page_table_width = kWidth;
      kv.page_table_rows = kBatch;
    }
    return kv;
  }

  tw_status operator()(Place& at) const {
    tw_new_kv rows{};
    rows.struct_size = sizeof rows;
    rows.dtype = c.type;
    rows.k = at.of(new_k);
    rows.v = at.of(new_v);
    rows.k_head_stride = c.k_dim;
    rows.v_head_stride = c.v_dim;
    rows.k_token_stride = kHeads * c.k_dim;
    rows.v_token_stride = kHeads * c.v_dim;
    const tw_kv_cache kv = cache(at);
    tw_kv_append_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.kv_dtype = c.kv_type;
    args.kv_heads = kHeads;
    args.head_dim = c.k_dim;
    args.v_head_dim = c.v_dim;
    args.batch = kBatch;
    args.rows = &rows;
    args.kv = &kv;
    args.status = at.status();
    if (c.form == Form::kDense) {
      args.q_len = 3;
      rows.k_batch_stride = 3 * rows.k_token_stride;
      rows.v_batch_stride = 3 * rows.v_token_stride;
    } else {
      args.total_q = kRows;
    }
    if (c.form == Form::kRagged) args.q_indptr = at.of(indptr);
    if (c.form == Form::kSlots) args.slot_mapping = at.of(slots);
    if (c.form == Form::kPairs) {
      args.batch_indices = at.of(requests);
      args.positions = at.of(positions);
    }
    return tw_kv_append(&args);
  }

  AppendCase c;
  Bytes new_k, new_v, k, v;
  Ids indptr = kIndptr, kv_lens = {9, 6, 20, 5}, kv_indptr = {0, 9, 15, 35, 40};
  Ids table, slots, requests, positions;
};

TEST_F(OpsCuda, AppendHasTheBytesOfTheCpuInEveryFormAndLayout) {
  for (const tw_dtype type : kTypes) {
    for (const tw_dtype kv_type : kTypes) {
      for (const Form form : {Form::kDense, Form::kRagged, Form::kPairs, Form::kSlots}) {
        for (const Layout layout :
             {Layout::kContiguous, Layout::kPacked, Layout::kPages, Layout::kPagesByHead}) {
          if (form == Form::kSlots && layout == Layout::kContiguous) continue;
          SCOPED_TRACE(::testing::Message()
                       << type << " to " << kv_type << " form " << static_cast<int>(form)
                       << " layout " << static_cast<int>(layout));
          const AppendCall call(
              {type, kv_type, form, layout, 64, layout == Layout::kPages ? 8 : 32});
          EXPECT_EQ(expect_same(call).fault.code, TW_FAULT_NONE);
        }
      }
    }
  }
}

// One fault each, so that there is one right record.
TEST_F(OpsCuda, AppendLeavesOutWhatHasNoPlace) {
  const auto expect_fault = [](Form form, int what, auto&& plant) {
    AppendCase c;
    c.form = form;
    AppendCall call(c);
    plant(call);
    EXPECT_EQ(expect_same(call).fault.what, what);
  };
  for (const std::int32_t bad : {-2, AppendCall::kPool, INT32_MAX, INT32_MIN}) {
    expect_fault(Form::kSlots, TW_WHAT_SLOT, [bad](AppendCall& call) { call.slots[4] = bad; });
    expect_fault(Form::kRagged, TW_WHAT_KV_LEN, [bad](AppendCall& call) {
      call.kv_lens[1] = bad;  // a request without rows
    });
    if (bad == -2) continue;  // below the table a page is not there
    expect_fault(Form::kPairs, TW_WHAT_BATCH_INDEX,
                 [bad](AppendCall& call) { call.requests[4] = bad; });
    expect_fault(Form::kPairs, TW_WHAT_POSITION,
                 [bad](AppendCall& call) { call.positions[4] = bad; });
    expect_fault(Form::kDense, TW_WHAT_PAGE_ID, [bad](AppendCall& call) {
      call.table[2 * AppendCall::kWidth + 4] = bad;  // keys 16 to 19
      call.kv_lens[2] = 17;
    });
  }
}

// Nothing but the record is promised here, and that no memory outside the arrays is touched.
TEST_F(OpsCuda, FollowsNoRowPointersThatDoNotRise) {
  for (const Ids& indptr : {Ids{0, 9, 4, 9, 12}, Ids{0, 4, -4, 9, 12}, Ids{0, 4, 4, 9, INT32_MAX},
                            Ids{INT32_MAX, INT32_MIN, 5, 4, 3}}) {
    AppendCall call(AppendCase{});
    call.indptr = indptr;
    const Outcome outcome = run_call(Side::kDevice, call);
    EXPECT_NE(outcome.fault.code, TW_FAULT_NONE);
    EXPECT_EQ(outcome.arrays[0], call.new_k);
  }
}

TEST_F(OpsCuda, PrepSaysThatItRunsOnTheCpuOnly) {
  Place at(Side::kDevice);
  tw_qk_prep_args args{};
  args.struct_size = sizeof args;
  args.target = at.target();
  args.dtype = TW_DTYPE_BF16;
  args.head_dim = 64;
  EXPECT_EQ(tw_qk_prep(&args), TW_UNSUPPORTED);
  EXPECT_NE(std::string(tw_last_error()).find("tw_qk_prep"), std::string::npos);
}

// More rows and requests than a grid has blocks in y or z.
constexpr std::int32_t kMany = 70000;

TEST_F(OpsCuda, TakesMoreRowsThanAGridDimension) {
  const Bytes x = numbers(TW_DTYPE_BF16, kMany * 8), table = numbers(TW_DTYPE_FP32, 64 * 4, 1);
  const Bytes out = sentinels(TW_DTYPE_BF16, kMany * 8);
  Ids indptr = {0}, start;
  for (std::int32_t r = 0; r < kMany; ++r) {
    indptr.push_back(std::min(kMany, indptr.back() + r % 3));
    start.push_back(r % 61);
  }
  expect_same([&](Place& at) {
    tw_rope_table rope{};
    rope.struct_size = sizeof rope;
    rope.cos = rope.sin = at.of(table);
    rope.cos_row_stride = rope.sin_row_stride = 4;
    rope.rows = 64;
    rope.rotary_dim = 8;
    tw_rope_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.dtype = TW_DTYPE_BF16;
    args.batch = kMany;
    args.q_indptr = at.of(indptr);
    args.total_q = kMany;
    args.heads = 1;
    args.head_dim = 8;
    args.x = at.of(x);
    args.out = at.of(out);
    args.x_head_stride = args.out_head_stride = args.x_token_stride = args.out_token_stride = 8;
    args.rope = &rope;
    args.start = at.of(start);
    args.status = at.status();
    return tw_rope(&args);
  });
}

TEST_F(OpsCuda, AppendsMoreRowsThanAGridDimension) {
  const Bytes rows = numbers(TW_DTYPE_FP16, kMany * 8);
  const Bytes k = sentinels(TW_DTYPE_FP16, kMany * 8), v = k;
  Ids slots;
  for (Index i = 0; i < kMany; ++i) slots.push_back(static_cast<std::int32_t>(i * 30011 % kMany));
  expect_same([&](Place& at) {
    tw_new_kv from{};
    from.struct_size = sizeof from;
    from.k = from.v = at.of(rows);
    from.k_head_stride = from.v_head_stride = from.k_token_stride = from.v_token_stride = 8;
    tw_kv_cache kv{};
    kv.struct_size = sizeof kv;
    kv.k = at.of(k);
    kv.v = at.of(v);
    kv.k_head_stride = kv.v_head_stride = kv.k_token_stride = kv.v_token_stride = 8;
    kv.kv_capacity = kMany;
    tw_kv_append_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.kv_dtype = TW_DTYPE_FP16;
    args.kv_heads = 1;
    args.head_dim = 8;
    args.rows = &from;
    args.kv = &kv;
    args.total_q = kMany;
    args.slot_mapping = at.of(slots);
    args.status = at.status();
    return tw_kv_append(&args);
  });
}

}  // namespace
}  // namespace tilewise::tests
