// Element types by their definition (significand bits and exponent range), in double arithmetic:
// slow, obvious, and independent of the library's conversions. Also the seed rule that all test
// data follows.
#pragma once

#include "verify/case.h"

namespace tilewise::verify {

Index element_bytes(tw_dtype type);

// `x` rounded to the nearest value of `type`, ties to even; overflow gives infinity.
double round_to(tw_dtype type, double x);

// Distance between neighbouring values of `type` around `x`.
double ulp_at(tw_dtype type, double x);

void store(void* base, tw_dtype type, Index i, double value);
double load(const void* base, tw_dtype type, Index i);

// A stream of 64-bit words from (seed, tensor id); word i depends on nothing else.
class Stream {
 public:
  Stream(std::uint64_t seed, std::uint64_t tensor);
  std::uint64_t word(Index i) const;
  double uniform(Index i) const;       // [-1, 1), i from 1
  double normal(Index element) const;  // unit variance, at most 3 in size, rounded to fp32

 private:
  std::uint64_t start_;
};

// Tensor ids of the seed rule; above 9 the project's own.
enum TensorId : std::uint64_t {
  kQ = 0,
  kK = 1,
  kV = 2,
  kNewK = 3,
  kNewV = 4,
  kSinks = 6,
  kPages = 9,
  kMask = 10,
  kTree = 11,
  kSlopes = 12,
  kHoles = 13
};

}  // namespace tilewise::verify
