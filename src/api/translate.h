// From the C structs to the checked problems of core. Each function refuses, with a text that names
// the argument, everything that the backends rely on not to happen.
#pragma once

#include <tilewise/tilewise.h>

#include "api/check.h"

namespace tilewise::api {

// `need_pointers` false: for queries of workspace and plan, where data pointers may still be null.
Status translate_attention(const tw_attention_args& args, bool need_pointers, core::Attention* out);

Status translate_qk_prep(const tw_qk_prep_args& args, core::QkPrep* out);
Status translate_rope(const tw_rope_args& args, core::Rope* out);
Status translate_kv_append(const tw_kv_append_args& args, core::KvAppend* out);
Status translate_merge_states(const tw_merge_states_args& args, core::MergeStates* out);
Status translate_output_gate(const tw_output_gate_args& args, core::OutputGate* out);
Status translate_elementwise(const tw_elementwise_args& args, core::ElementwiseOp op,
                             core::Elementwise* out);

}  // namespace tilewise::api
