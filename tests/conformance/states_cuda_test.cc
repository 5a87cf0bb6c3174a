// tw_merge_states, tw_output_gate, tw_softcap and tw_scale on a CUDA device against the same calls
// on the CPU. The two have exponentials of their own, each good to a few ulps of float32.
#include <cmath>

#include "tests/support/ops_call.h"
#include "tests/support/raw_call.h"

namespace tilewise::tests {
namespace {

constexpr tw_dtype kTypes[] = {TW_DTYPE_BF16, TW_DTYPE_FP16, TW_DTYPE_FP32};

class StatesCuda : public DeviceTest {};

Bytes numbers(tw_dtype type, Index elements, std::uint64_t id = 0) {
  return drawn(78, static_cast<verify::TensorId>(id), type, elements);
}

// A rounding to 16 bits may fall on the other side.
Distance distance_of(tw_dtype type, double fp32_ulps) {
  return type == TW_DTYPE_FP32 ? Distance{fp32_ulps, 1e-6} : Distance{1, 1e-6};
}

struct MergeCase {
  tw_dtype type = TW_DTYPE_BF16, out_type = TW_DTYPE_BF16;
  Index states = 4, dim = 64, pad = 0;
  bool sinks = false, in_place = false;
};

struct MergeCall {
  static constexpr Index kRows = 5, kHeads = 3;

  explicit MergeCall(const MergeCase& which)
      : c(which),
        o(numbers(c.type, c.states * state())),
        out(static_cast<std::size_t>(state() * verify::element_bytes(c.out_type)), 0xFF),
        lse(static_cast<std::size_t>(c.states * kRows * kHeads)),
        out_lse(static_cast<std::size_t>(kRows * kHeads), 7.0f),
        sinks{0.5f, -INFINITY, 3.0f} {
    const verify::Stream stream(78, 6);
    for (Index i = 0; i < static_cast<Index>(lse.size()); ++i) {
      lse[static_cast<std::size_t>(i)] = 4 * static_cast<float>(stream.normal(i));
    }
    for (Index s = 0; s < c.states; ++s) {
      for (Index h = 0; h < kHeads; ++h) {
        lse_of(s, 0, h) = -INFINITY;              // nobody saw anything
        if (s != 2) lse_of(s, 1, h) = -INFINITY;  // one state did
        if (s % 2 == 0) lse_of(s, 2, h) = -INFINITY;
      }
    }
  }
  Index state() const { return kRows * kHeads * (c.dim + c.pad); }
  float& lse_of(Index s, Index row, Index head) {
    return lse[static_cast<std::size_t>((s * kRows + row) * kHeads + head)];
  }

  tw_status operator()(Place& at) const {
    tw_merge_states_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.dtype = c.type;
    args.out_dtype = c.out_type;
    args.states = static_cast<std::int32_t>(c.states);
    args.heads = kHeads;
    args.v_head_dim = static_cast<std::int32_t>(c.dim);
    args.rows = kRows;
    args.o = at.of(o);
    args.o_head_stride = args.out_head_stride = c.dim + c.pad;
    args.o_row_stride = args.out_row_stride = kHeads * args.o_head_stride;
    args.o_state_stride = state();
    args.lse = at.of(lse);
    args.lse_head_stride = args.out_lse_head_stride = 1;
    args.lse_row_stride = args.out_lse_row_stride = kHeads;
    args.lse_state_stride = kRows * kHeads;
    args.sinks = c.sinks ? at.of(sinks) : nullptr;
    args.out = c.in_place ? at.of(o) : at.of(out);
    args.out_lse = c.in_place ? at.of(lse) : at.of(out_lse);
    return tw_merge_states(&args);
  }

  MergeCase c;
  Bytes o, out;
  std::vector<float> lse, out_lse, sinks;
};

void expect_merged(const MergeCase& c) {
  const MergeCall call(c);
  const std::size_t sinks = c.sinks ? 1 : 0;
  if (c.in_place) {
    expect_near(call, 0, c.type, distance_of(c.type, 4));
    expect_near(call, 1, TW_DTYPE_FP32, {2, 1e-6});
  } else {
    expect_near(call, 2 + sinks, c.out_type, distance_of(c.out_type, 4));
    expect_near(call, 3 + sinks, TW_DTYPE_FP32, {2, 1e-6});
  }
}

TEST_F(StatesCuda, MergesAsTheCpuDoes) {
  for (const tw_dtype type : kTypes) {
    for (const Index states : {0, 1, 3, 4, 40}) {
      for (const Index dim : {8, 20, 64, 512}) {
        for (const bool sinks : {false, true}) {
          SCOPED_TRACE(::testing::Message() << type << ", states " << states << ", dim " << dim);
          expect_merged({type, type, states, dim, 0, sinks, false});
          expect_merged({type, TW_DTYPE_FP32, states, dim, 3, sinks, false});
        }
        if (states > 0) expect_merged({type, type, states, dim, 0, false, true});
      }
    }
  }
}

TEST_F(StatesCuda, ASingleStateComesBackAsItWas) {
  for (const tw_dtype type : kTypes) {
    for (const Index dim : {20, 64}) {
      MergeCase c;
      c.type = c.out_type = type;
      c.states = 1;
      c.dim = dim;
      MergeCall call(c);
      call.lse.assign(call.lse.size(), 1.5f);
      verify::store(call.o.data(), type, 3, NAN);
      const Outcome outcome = expect_same(call);
      EXPECT_EQ(outcome.arrays[2], call.o);
    }
  }
}

struct GateCall {
  static constexpr Index kRows = 37, kHeads = 3;

  tw_status operator()(Place& at) const {
    tw_output_gate_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.dtype = type;
    args.rows = kRows;
    args.heads = kHeads;
    args.head_dim = static_cast<std::int32_t>(dim);
    args.o = at.of(o, offset);
    args.gate = at.of(gate);
    args.o_head_stride = args.gate_head_stride = dim;
    args.o_row_stride = args.gate_row_stride = kHeads * dim;
    return tw_output_gate(&args);
  }

  tw_dtype type;
  Index dim, offset;
  Bytes o = numbers(type, kRows*kHeads*dim), gate = numbers(type, kRows*kHeads*dim, 1);
};

TEST_F(StatesCuda, GatesAsTheCpuDoes) {
  for (const tw_dtype type : kTypes) {
    for (const Index dim : {1, 20, 64, 256}) {
      for (const Index offset : {Index{0}, verify::element_bytes(type)}) {
        GateCall call{type, dim, offset};
        verify::store(call.gate.data(), type, 0, 200.0);
        if (dim > 1) verify::store(call.gate.data(), type, dim - 1, -200.0);
        expect_near(call, 0, type, distance_of(type, 8));
      }
    }
  }
}

using Elementwise = tw_status (*)(const tw_elementwise_args*);

Call elementwise(Elementwise run, tw_dtype type, const Bytes& x, Index offset) {
  return [=, &x](Place& at) {
    tw_elementwise_args args{};
    args.struct_size = sizeof args;
    args.target = at.target();
    args.dtype = type;
    args.x = at.of(x, offset);
    args.n = static_cast<Index>(x.size()) / verify::element_bytes(type);
    args.value = 1.7f;
    return run(&args);
  };
}

TEST_F(StatesCuda, ScalesWithTheBytesOfTheCpuAndCapsAsItDoes) {
  for (const tw_dtype type : kTypes) {
    for (const Index n : {0, 1, 7, 8, 1001, 3000005}) {
      const Bytes x = numbers(type, n);
      for (const Index offset : {Index{0}, verify::element_bytes(type)}) {
        expect_same(elementwise(tw_scale, type, x, offset));
        expect_near(elementwise(tw_softcap, type, x, offset), 0, type, distance_of(type, 8));
      }
    }
  }
}

}  // namespace
}  // namespace tilewise::tests
