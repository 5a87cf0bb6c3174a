// Products of activations (float32) with the model's weights (bf16 bits, row by row, used where the
// file lies in memory). Few rows: our own kernel, bound by the read of the weights; many: oneDNN.
// All arithmetic is float32, as bf16 values are float32 values.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "generate/thread_pool.h"

namespace tilewise::generate {

// x [rows, k] with row stride ldx.
struct Activations {
  const float* x;
  std::int64_t ldx;
  std::int64_t rows;
  std::int64_t k;
};

// y [rows, n] = x * w^T with w [n, k]; row stride ldy.
struct Product {
  const std::uint16_t* w;
  std::int64_t n;
  float* y;
  std::int64_t ldy;
};

// All products of the same activations, in one go over the pool's threads. Neither the number of
// threads nor their timing changes a bit of a result.
void multiply(ThreadPool& pool, const Activations& in, std::initializer_list<Product> products);

}  // namespace tilewise::generate
