// One attention problem as plain choices: what `tilewise verify` and the conformance tests
// generate, describe in a line, and turn into tensors. Nothing here knows how the library works; it
// speaks to the C ABI only.
#pragma once

#include <tilewise/tilewise.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tilewise::verify {

using Index = std::int64_t;

template <class Container>
auto& at(Container& container, Index i) {
  return container[static_cast<std::size_t>(i)];
}

enum class Storage { kContiguous, kPacked, kCsr, kBlockTable, kTokenTable };
enum class Order {
  kTokenMajor,
  kHeadMajor,
  kInterleaved
};  // interleaved: pages of all layers, K beside V
enum class Lengths { kArray, kScalar, kIndptr, kLastPage };
enum class Positions { kDefault, kStart, kTree };
enum class MaskKind { kNone, kShared, kPerRequest, kPerHead, kTree, kRagged };
enum class Alibi { kNone, kPerHead, kPerRequest };
enum class Append { kNone, kSame, kConverted };
enum class QOrder { kTokenMajor, kHeadMajor, kReversedHeads };
enum class Fill { kNormal, kCensus };

struct Request {
  Index q_len = 1, kv_len = 65;
  Index tag = -1;  // which data it carries, so that a request can be met again in another batch;
                   // -1: its index
};

constexpr Index kOff = -1;

struct Case {
  std::string id;
  std::uint64_t seed = 1;
  Fill fill = Fill::kNormal;
  tw_dtype q_type = TW_DTYPE_FP32, kv_type = TW_DTYPE_FP32, o_type = TW_DTYPE_DEFAULT;
  Index q_heads = 4, kv_heads = 2, head_dim = 64, v_head_dim = 0;
  std::vector<Request> requests = std::vector<Request>(1);
  bool ragged = false;
  QOrder q_order = QOrder::kTokenMajor;
  Storage storage = Storage::kContiguous;
  Order order = Order::kTokenMajor;
  Lengths lengths = Lengths::kArray;
  Index page_size = 16;
  bool released = false;  // front pages given back: first_page > 0
  bool holes = false;     // -1 among the needed entries
  bool causal = false;
  Index window_left = kOff, window_right = kOff;
  Positions positions = Positions::kDefault;
  MaskKind mask = MaskKind::kNone;
  Alibi alibi = Alibi::kNone;
  bool sinks = false, lse = true;
  float softcap = 0, scale = 0;
  Append append = Append::kNone;
  bool slack = false;           // bounds, capacities and indptr origins larger than needed
  bool hook = false;            // the caller's parallel_for
  std::uint64_t pool_seed = 0;  // order of the pages in the pool
  std::uint8_t garbage = 0xFF;  // every byte of the caches that belongs to no visible key
  int threads = 1;
  tw_row_class row_class = TW_CLASS_AUTO;

  Index batch() const { return static_cast<Index>(requests.size()); }
  Index v_dim() const { return v_head_dim != 0 ? v_head_dim : head_dim; }
  Index group() const { return q_heads / kv_heads; }
  bool paged() const { return storage != Storage::kContiguous && storage != Storage::kPacked; }
  tw_dtype output_type() const { return o_type != TW_DTYPE_DEFAULT ? o_type : q_type; }
  tw_dtype append_type() const {
    if (append != Append::kConverted) return kv_type;
    return kv_type == TW_DTYPE_FP32 ? TW_DTYPE_BF16 : TW_DTYPE_FP32;
  }
  Index tag_of(Index r) const { return at(requests, r).tag >= 0 ? at(requests, r).tag : r; }
  Index most_keys() const;
  Index most_rows() const;
};

// Changes choices that contradict each other into the nearest ones that do not (a dense q gets
// equal lengths, ...).
void settle(Case& c);

// One line with every choice that is not the default; begins with the id.
std::string describe(const Case& c);

const char* name_of_type(tw_dtype type);

}  // namespace tilewise::verify
