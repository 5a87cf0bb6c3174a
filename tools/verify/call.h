// Runs a problem through tw_attention on the backend in use: lays its tensors out in guarded,
// poisoned memory, calls, and reads the rows back.
#pragma once

#include <memory>

#include "verify/backend.h"
#include "verify/cache.h"

namespace tilewise::verify {

// What one run of a problem does differently from another; none of it may change a row's bytes, but
// for the first two.
struct Choice {
  int variant = 0;
  tw_dtype o_type = TW_DTYPE_DEFAULT;  // default: the case's
  int threads = 0;                     // 0: the case's
  std::uint8_t workspace_fill = kPoison;
};

struct Answer {
  tw_status status = TW_OK;
  std::string error;
  tw_status_record fault{};
  std::vector<float> o;             // [row][head][v_dim]
  std::vector<float> lse;           // [row][head], empty if the case has none
  std::vector<std::uint8_t> bytes;  // of o, then lse, in that order, as they were stored
  std::string damage;               // what was written that should not have been; empty if nothing
};

class Call {
 public:
  explicit Call(const Problem& p);
  Answer run(const Choice& choice = {});

  // The arguments that run() starts from, for tests that change one. Pointers are the host's on
  // every backend, and stay valid while this lives.
  tw_attention_args& args() { return args_; }
  tw_kv_cache& kv() { return kv_; }
  // Memory with guards that args() point into.
  std::vector<const Block*> blocks() const;

 private:
  Index line(Index r, Index i) const;  // row's index in ragged tensors and in q_positions
  Index offset(const Strides& s, Index r, Index i, Index h) const;
  Strides rows_of(Index heads, Index dim, QOrder order) const;
  void lay_out_q();
  void lay_out_append();
  void make_positions();
  void make_mask();
  void set_mask_strides(Index width);
  void set_semantics();
  void look_for_damage(const Block& o, const Block& lse, const Block& workspace, tw_dtype o_type,
                       Answer* answer);
  void read_rows(const Block& o, const Block& lse, tw_dtype o_type, Answer* answer);

  const Problem& p_;
  Cache cache_;
  Index total_ = 0;  // rows of ragged tensors
  Block q_, new_k_, new_v_, mask_bytes_;
  Strides q_at_, o_at_, lse_at_;
  std::vector<std::int32_t> q_indptr_, positions_, start_, mask_first_;
  std::vector<std::int64_t> mask_offset_;
  std::vector<float> slopes_;
  tw_target target_{};
  tw_kv_cache kv_{};
  tw_new_kv append_{};
  tw_mask mask_{};
  tw_attention_args args_{};
};

// One run of `p` in memory of its own.
Answer attend(const Problem& p, const Choice& choice = {});

}  // namespace tilewise::verify
