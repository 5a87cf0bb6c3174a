// The features and the shapes that they are tried on.
#include "verify/matrix.h"

namespace tilewise::verify {
namespace {

void page(Case& c, Storage storage, Index size, Lengths lengths = Lengths::kArray) {
  c.storage = storage;
  c.page_size = size;
  c.lengths = lengths;
}

const std::vector<Feature>& storage_features() {
  static const std::vector<Feature> list = {
      {"storage", "packed", [](Case& c) { c.storage = Storage::kPacked; }},
      {"storage", "csr", [](Case& c) { page(c, Storage::kCsr, 16); }},
      {"storage", "csr last page", [](Case& c) { page(c, Storage::kCsr, 8, Lengths::kLastPage); }},
      {"storage", "csr indptr", [](Case& c) { page(c, Storage::kCsr, 13, Lengths::kIndptr); }},
      {"storage", "block table", [](Case& c) { page(c, Storage::kBlockTable, 32); }},
      {"storage", "wide pages", [](Case& c) { page(c, Storage::kBlockTable, 128); }},
      {"storage", "token table", [](Case& c) { page(c, Storage::kTokenTable, 1); }},
      {"storage", "scalar length", [](Case& c) { c.lengths = Lengths::kScalar; }},
      {"order", "head major", [](Case& c) { c.order = Order::kHeadMajor; }},
      {"order", "interleaved", [](Case& c) { c.order = Order::kInterleaved; }},
      {"pages", "released", [](Case& c) { c.released = true; }},
      {"pages", "holes", [](Case& c) { c.holes = true; }},
      {"append", "append", [](Case& c) { c.append = Append::kSame; }},
      {"append", "append converted", [](Case& c) { c.append = Append::kConverted; }},
      {"bounds", "slack", [](Case& c) { c.slack = true; }}};
  return list;
}

const std::vector<Feature>& semantic_features() {
  static const std::vector<Feature> list = {
      {"causal", "causal", [](Case& c) { c.causal = true; }},
      {"left", "left 0", [](Case& c) { c.window_left = 0; }},
      {"left", "left 7", [](Case& c) { c.window_left = 7; }},
      {"left", "left 70", [](Case& c) { c.window_left = 70; }},
      {"right", "right 0", [](Case& c) { c.window_right = 0; }},
      {"right", "right 5", [](Case& c) { c.window_right = 5; }},
      {"positions", "q_start", [](Case& c) { c.positions = Positions::kStart; }},
      {"positions", "q_positions", [](Case& c) { c.positions = Positions::kTree; }},
      {"mask", "mask rank 2", [](Case& c) { c.mask = MaskKind::kShared; }},
      {"mask", "mask rank 3", [](Case& c) { c.mask = MaskKind::kPerRequest; }},
      {"mask", "mask rank 4", [](Case& c) { c.mask = MaskKind::kPerHead; }},
      {"mask", "tree mask", [](Case& c) { c.mask = MaskKind::kTree; }},
      {"mask", "ragged mask", [](Case& c) { c.mask = MaskKind::kRagged; }},
      {"softcap", "cap 1", [](Case& c) { c.softcap = 1; }},
      {"softcap", "cap 30", [](Case& c) { c.softcap = 30; }},
      {"alibi", "alibi", [](Case& c) { c.alibi = Alibi::kPerHead; }},
      {"alibi", "alibi per request", [](Case& c) { c.alibi = Alibi::kPerRequest; }},
      {"sinks", "sinks", [](Case& c) { c.sinks = true; }},
      {"scale", "scale", [](Case& c) { c.scale = 0.4f; }},
      {"scale", "negative scale", [](Case& c) { c.scale = -0.1f; }}};
  return list;
}

const std::vector<Feature>& shape_features() {
  static const std::vector<Feature> list = {
      {"types", "bf16", [](Case& c) { c.q_type = c.kv_type = TW_DTYPE_BF16; }},
      {"types", "fp16", [](Case& c) { c.q_type = c.kv_type = TW_DTYPE_FP16; }},
      {"o", "float output", [](Case& c) { c.o_type = TW_DTYPE_FP32; }},
      {"v dim", "narrow v", [](Case& c) { c.v_head_dim = 24; }},
      {"v dim", "wide v", [](Case& c) { c.v_head_dim = 96; }},
      {"heads", "group 1", [](Case& c) { c.q_heads = c.kv_heads = 3; }},
      {"heads", "group 7", [](Case& c) { c.q_heads = 7, c.kv_heads = 1; }},
      {"q", "q head major", [](Case& c) { c.q_order = QOrder::kHeadMajor; }},
      {"q", "q reversed", [](Case& c) { c.q_order = QOrder::kReversedHeads; }},
      {"lse", "no lse", [](Case& c) { c.lse = false; }},
      {"class", "class D", [](Case& c) { c.row_class = TW_CLASS_D; }},
      {"class", "class P", [](Case& c) { c.row_class = TW_CLASS_P; }},
      {"workers", "two threads", [](Case& c) { c.threads = 2; }},
      {"workers", "hook", [](Case& c) { c.hook = true, c.threads = 3; }}};
  return list;
}

Case base(std::vector<Request> requests, bool ragged, Index head_dim) {
  Case c;
  c.requests = std::move(requests);
  c.ragged = ragged;
  c.head_dim = head_dim;
  return c;
}

}  // namespace

const std::vector<Feature>& features() {
  static const std::vector<Feature> all = [] {
    std::vector<Feature> list;
    for (const auto* part : {&storage_features(), &semantic_features(), &shape_features()})
      list.insert(list.end(), part->begin(), part->end());
    return list;
  }();
  return all;
}

std::vector<Case> base_cases() {
  return {base({{1, 37}, {1, 0}, {1, 200}, {1, 129}}, false, 64),
          base({{1, 65}, {17, 90}, {3, 129}, {0, 9}, {20, 12}}, true, 40),
          base({{33, 33}, {33, 97}}, false, 64), base({{5, 131}, {5, 70}}, false, 32)};
}

}  // namespace tilewise::verify
