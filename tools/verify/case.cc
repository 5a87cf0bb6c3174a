// Cases: making choices agree, and describing them in a line.
#include "verify/case.h"

#include <algorithm>
#include <sstream>

namespace tilewise::verify {
namespace {

// Writes `name` of the choice's value, nothing for the first (the default).
template <class Enum>
void name_choice(std::ostream& out, Enum value, std::initializer_list<const char*> names) {
  const auto index = static_cast<std::size_t>(value);
  if (index != 0) out << ' ' << *(names.begin() + static_cast<std::ptrdiff_t>(index));
}

void name_requests(std::ostream& out, const Case& c) {
  out << " q[";
  for (Index r = 0; r < c.batch(); ++r) out << (r != 0 ? "," : "") << at(c.requests, r).q_len;
  out << "] kv[";
  for (Index r = 0; r < c.batch(); ++r) out << (r != 0 ? "," : "") << at(c.requests, r).kv_len;
  out << ']';
}

void name_semantics(std::ostream& out, const Case& c) {
  if (c.causal) out << " causal";
  if (c.window_left != kOff) out << " left" << c.window_left;
  if (c.window_right != kOff) out << " right" << c.window_right;
  name_choice(out, c.positions, {"", "q_start", "positions"});
  name_choice(out, c.mask, {"", "mask2", "mask3", "mask4", "masktree", "maskragged"});
  name_choice(out, c.alibi, {"", "alibi", "alibibatch"});
  if (c.sinks) out << " sinks";
  if (!c.lse) out << " nolse";
  if (c.softcap != 0) out << " cap" << c.softcap;
  if (c.scale != 0) out << " scale" << c.scale;
  name_choice(out, c.append, {"", "append", "appendconverted"});
}

void settle_cache(Case& c) {
  if (c.storage == Storage::kTokenTable) c.page_size = 1;
  if (c.storage == Storage::kPacked) c.lengths = Lengths::kIndptr;
  if (c.storage == Storage::kContiguous && c.lengths != Lengths::kScalar)
    c.lengths = Lengths::kArray;
  if (c.lengths == Lengths::kLastPage && c.storage != Storage::kCsr) c.lengths = Lengths::kArray;
  if (!c.paged()) {
    c.released = c.holes = false;
    if (c.order == Order::kInterleaved) c.order = Order::kHeadMajor;
  }
}

}  // namespace

Index Case::most_keys() const {
  Index most = 0;
  for (const Request& r : requests) most = std::max(most, r.kv_len);
  return most;
}

Index Case::most_rows() const {
  Index most = 0;
  for (const Request& r : requests) most = std::max(most, r.q_len);
  return most;
}

void settle(Case& c) {
  settle_cache(c);
  for (Request& r : c.requests) {
    if (!c.ragged) r.q_len = c.requests.front().q_len;
    if (c.append != Append::kNone) r.kv_len = std::max(r.kv_len, r.q_len);
    if (c.mask == MaskKind::kTree) r.kv_len = std::max(r.kv_len, r.q_len);
  }
  if (c.lengths == Lengths::kScalar) {
    const Index longest = c.most_keys();
    for (Request& r : c.requests) r.kv_len = longest;
  }
}

const char* name_of_type(tw_dtype type) {
  return type == TW_DTYPE_BF16 ? "bf16" : type == TW_DTYPE_FP16 ? "fp16" : "fp32";
}

std::string describe(const Case& c) {
  std::ostringstream out;
  out << c.id << ' ' << name_of_type(c.q_type) << '/' << name_of_type(c.kv_type);
  if (c.o_type != TW_DTYPE_DEFAULT) out << '/' << name_of_type(c.o_type);
  out << " h" << c.q_heads << 'x' << c.kv_heads << " d" << c.head_dim;
  if (c.v_dim() != c.head_dim) out << " v" << c.v_dim();
  name_requests(out, c);
  if (c.ragged) out << " ragged";
  name_choice(out, c.q_order, {"", "qheadmajor", "qreversed"});
  name_choice(out, c.storage, {"", "packed", "csr", "block", "token"});
  if (c.paged()) out << " page" << c.page_size;
  name_choice(out, c.order, {"", "headmajor", "interleaved"});
  name_choice(out, c.lengths, {"", "scalarlen", "indptrlen", "lastpage"});
  if (c.released) out << " released";
  if (c.holes) out << " holes";
  name_semantics(out, c);
  name_choice(out, c.row_class, {"", "classD", "classP"});
  if (c.fill == Fill::kCensus) out << " census";
  if (c.garbage != 0xFF) out << " garbage" << static_cast<int>(c.garbage);
  if (c.pool_seed != 0) out << " pool" << c.pool_seed;
  if (c.slack) out << " slack";
  if (c.hook) out << " hook";
  if (c.threads != 1) out << " threads" << c.threads;
  out << " seed" << c.seed;
  return out.str();
}

}  // namespace tilewise::verify
