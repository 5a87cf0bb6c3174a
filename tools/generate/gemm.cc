// See gemm.h.
#include "generate/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cassert>
#include <vector>

#include "generate/kernels.h"

namespace tilewise::generate {
namespace {

// Below this our kernel is faster than widening and packing weights for oneDNN
// (docs/performance.md).
constexpr std::int64_t kFewRows = 64;
// Weight rows that one task gives to oneDNN: the widened slice (288 x 576 floats) stays in a 1 MB
// cache.
constexpr std::int64_t kSliceRows = 288;
// Tasks per thread of a product with few rows: enough to even out a thread that is held up.
constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kMinTaskRows = 16;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Weight rows per task of one product, a multiple of 16.
std::int64_t rows_per_task(const Activations& in, std::int64_t n, std::int64_t threads) {
  const std::int64_t tasks = in.rows <= kFewRows
                                 ? std::min(threads * kTasksPerThread, divide_up(n, kMinTaskRows))
                                 : divide_up(n, kSliceRows);
  return divide_up(divide_up(n, std::max<std::int64_t>(tasks, 1)), 16) * 16;
}

void multiply_slice(const Activations& in, const Product& product, std::int64_t begin,
                    std::int64_t end) {
  if (in.rows <= kFewRows) {
    dot_rows({in.x, in.ldx, in.rows, product.w, in.k, product.y, product.ldy}, begin, end);
    return;
  }
  thread_local std::vector<float> widened;
  widened.resize(static_cast<std::size_t>((end - begin) * in.k));
  widen_bf16(product.w + begin * in.k, (end - begin) * in.k, widened.data());
  [[maybe_unused]] const dnnl_status_t status =
      dnnl_sgemm('N', 'T', in.rows, end - begin, in.k, 1.0f, in.x, in.ldx, widened.data(), in.k,
                 0.0f, product.y + begin, product.ldy);
  assert(status == dnnl_success);  // every extent above is positive and every stride covers its row
}

}  // namespace

void multiply(ThreadPool& pool, const Activations& in, std::initializer_list<Product> products) {
  struct Part {
    const Product* product;
    std::int64_t rows, first_task;
  };
  constexpr std::size_t kMaxProducts = 3;
  assert(products.size() <= kMaxProducts);
  Part parts[kMaxProducts];
  std::size_t count = 0;
  std::int64_t tasks = 0;
  for (const Product& product : products) {
    const std::int64_t rows = rows_per_task(in, product.n, pool.threads());
    parts[count++] = {&product, rows, tasks};
    tasks += divide_up(product.n, rows);
  }
  pool.for_each(tasks, [&](std::int64_t task) {
    const Part* part = &parts[count - 1];
    while (part->first_task > task) --part;
    const std::int64_t begin = (task - part->first_task) * part->rows;
    multiply_slice(in, *part->product, begin, std::min(begin + part->rows, part->product->n));
  });
}

}  // namespace tilewise::generate
