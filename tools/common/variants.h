// The variants of tw_attention on a device, found by asking tw_attention_explain for each number.
#pragma once

#include <tilewise/tilewise.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise::tools {

struct Variant {
  std::int32_t number = 0;
  std::string name;  // as explain calls it; empty if it is not usable
  bool usable = false;
  std::string reason;  // the library's text if it is not
};

// For `dtype` queries and cache of dimension 128 and the call that most variants take: one causal
// prompt on the CPU, on CUDA one row over keys enough to be shared out.
std::vector<Variant> list_variants(tw_dtype dtype, tw_device_kind kind = TW_DEVICE_CPU);

// What would run for `args`, by explain's line "variant: number (name)".
Variant running_variant(const tw_attention_args& args);

// Value of the line "key: value" of what explain says about `args`; empty if there is none.
std::string explained(const tw_attention_args& args, const std::string& key);

}  // namespace tilewise::tools
