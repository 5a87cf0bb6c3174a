// The list of timed calls. Names read kind/type/shape/flavour.
#include "bench/rows.h"

namespace tilewise::bench {
namespace {

constexpr tw_dtype kDtypes[] = {TW_DTYPE_FP32, TW_DTYPE_FP16, TW_DTYPE_BF16};

// One prompt of 2,048 tokens, 8 heads.
void add_prefill(std::vector<Row>* rows) {
  for (const tw_dtype dtype : kDtypes) {
    for (const std::int32_t head_dim : {64, 128}) {
      for (const bool causal : {true, false}) {
        Shape shape;
        shape.dtype = dtype;
        shape.head_dim = head_dim;
        shape.q_len = shape.kv_len = 2048;
        shape.causal = causal;
        shape.head_major = true;
        rows->push_back({std::string("prefill/") + dtype_name(dtype) + "/d" +
                             std::to_string(head_dim) + (causal ? "/causal" : "/full"),
                         shape, make_attention});
      }
    }
  }
}

// One token of one request, 32 query heads over 8 cache heads; the cache, or each page of it, in
// [head, token, dim] or [token, head, dim] order.
void add_decode(std::vector<Row>* rows) {
  for (const tw_dtype dtype : kDtypes) {
    for (const std::int32_t kv_len : {1024, 16384}) {
      for (const std::int32_t page_size : {0, 16}) {
        for (const bool head_major : {true, false}) {
          Shape shape;
          shape.dtype = dtype;
          shape.q_heads = 32;
          shape.kv_len = kv_len;
          shape.causal = true;
          shape.page_size = page_size;
          shape.head_major = head_major;
          const std::string place =
              page_size == 0 ? "contiguous" : "paged" + std::to_string(page_size);
          rows->push_back({std::string("decode/") + dtype_name(dtype) + "/kv" +
                               std::to_string(kv_len) + "/" + place + "-" + layout_name(shape),
                           shape, make_attention});
        }
      }
    }
  }
}

void add_qk_prep(std::vector<Row>* rows) {
  for (const tw_dtype dtype : kDtypes) {
    Shape shape;
    shape.dtype = dtype;
    shape.q_heads = 32;
    shape.q_len = shape.kv_len = 4096;
    rows->push_back({std::string("qk_prep/") + dtype_name(dtype) + "/4096", shape, make_qk_prep});
  }
}

}  // namespace

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  add_prefill(&rows);
  add_decode(&rows);
  add_qk_prep(&rows);
  return rows;
}

}  // namespace tilewise::bench
