// Tilewise for C++: a thin, header-only layer over the C ABI. It adds zeroed and sized structs,
// exceptions instead of status codes for those who want them, and nothing that costs a cycle.
#pragma once

#include <tilewise/tilewise.h>

#include <stdexcept>
#include <string>

namespace tilewise {

// A failed call: the status and the library's text.
class Error : public std::runtime_error {
 public:
  Error(tw_status status, const std::string& text)
      : std::runtime_error(std::string(tw_status_string(status)) + ": " + text), status_(status) {}
  tw_status status() const noexcept { return status_; }

 private:
  tw_status status_;
};

// Throws Error unless `status` is TW_OK. Call it on the thread that made the call.
inline void check(tw_status status) {
  if (status != TW_OK) throw Error(status, tw_last_error());
}

// A zeroed struct of the C ABI with its size filled in: auto args =
// tilewise::make<tw_attention_args>();
template <class Struct>
Struct make() {
  Struct s{};
  s.struct_size = static_cast<uint32_t>(sizeof(Struct));
  return s;
}

// The calls, throwing.
inline void attention(const tw_attention_args& args) { check(tw_attention(&args)); }
inline void qk_prep(const tw_qk_prep_args& args) { check(tw_qk_prep(&args)); }
inline void rope(const tw_rope_args& args) { check(tw_rope(&args)); }
inline void kv_append(const tw_kv_append_args& args) { check(tw_kv_append(&args)); }
inline void merge_states(const tw_merge_states_args& args) { check(tw_merge_states(&args)); }
inline void output_gate(const tw_output_gate_args& args) { check(tw_output_gate(&args)); }
inline void softcap(const tw_elementwise_args& args) { check(tw_softcap(&args)); }
inline void scale(const tw_elementwise_args& args) { check(tw_scale(&args)); }

// Bytes that tw_attention wants as workspace for `args`, aligned to 256.
inline uint64_t attention_workspace(const tw_attention_args& args) {
  uint64_t bytes = 0;
  check(tw_attention_workspace(&args, &bytes));
  return bytes;
}

// What would run for `args`, and why.
inline std::string attention_explain(const tw_attention_args& args) {
  size_t length = 0;
  check(tw_attention_explain(&args, nullptr, 0, &length));
  std::string text(length + 1, '\0');
  check(tw_attention_explain(&args, &text[0], text.size(), nullptr));
  text.resize(length);
  return text;
}

}  // namespace tilewise
