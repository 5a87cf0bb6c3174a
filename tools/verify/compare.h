// Whether an answer is right: non-finite places first, then every element against the oracle under
// the tolerance rule.
#pragma once

#include "verify/call.h"
#include "verify/emulate.h"

namespace tilewise::verify {

// How far an output element may be from the oracle's. The house rule: twice the worst error of an
// emulation that rounds inputs and weights to the element type, plus one ulp of the output type;
// with float32 on either side 1e-5 of the largest |V|, plus the ulp. Kernels that keep weights in
// float32 are held to the second bound for every type.
struct Tolerance {
  double absolute = 0;
  tw_dtype o_type = TW_DTYPE_FP32;
  double lse = 0, lse_relative = 2e-6;
  double of(double reference) const { return absolute + ulp_at(o_type, reference); }
};

// `keeps_float_weights`: the vector kernels; the AMX kernels round weights to bf16.
Tolerance tolerance(const Problem& p, const Emulation& e, const Answer& oracle,
                    bool keeps_float_weights);

struct Verdict {
  std::string why;                                // first fault in words, empty if right
  double worst_absolute = 0, worst_relative = 0;  // of o; relative to the largest |V|
  bool ok() const { return why.empty(); }
};

Verdict judge(const Problem& p, const Answer& oracle, const Answer& answer,
              const Tolerance& allowed);

// The oracle against the emulation, within what the emulation itself can be off.
Verdict judge_oracle(const Problem& p, const Emulation& e, const Answer& oracle);

}  // namespace tilewise::verify
