// The vector loops of the model runner: products with bf16 weights for few rows, norms, activation.
// Compiled for every vector target of the machine's family; the best one is chosen at run time.
#pragma once

#include <cstdint>

namespace tilewise::generate {

// Rows of x that one pass over the weights serves at most.
constexpr std::int64_t kMaxPassRows = 6;

// x [rows, k] float32 and w [n, k] bf16 bits, both row by row.
struct DotProblem {
  const float* x;
  std::int64_t ldx;
  std::int64_t rows;
  const std::uint16_t* w;
  std::int64_t k;
  float* y;  // [rows, n] with row stride ldy
  std::int64_t ldy;
};

// y[r][i] = sum over k of x[r][k] * w[i][k] for every row r and weight row i in [begin, end), in
// float32. The bits of an element depend on its own row and weights only.
void dot_rows(const DotProblem& problem, std::int64_t begin, std::int64_t end);

// float32 values of bf16 bits.
void widen_bf16(const std::uint16_t* bits, std::int64_t n, float* out);

// out[i] = x[i] * weight[i] / sqrt(mean of squares + eps)
void rms_norm_row(const float* x, const float* weight, std::int64_t n, float eps, float* out);

// x += delta
void add_row(float* x, const float* delta, std::int64_t n);

// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
void silu_multiply(float* gate, const float* up, std::int64_t n);

}  // namespace tilewise::generate
