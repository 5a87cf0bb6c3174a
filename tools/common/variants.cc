// Probing of the variant numbers. explain reads no tensor, so any aligned address will do.
#include "common/variants.h"

#include <cstddef>
#include <tilewise/tilewise.hpp>

#include "common/library.h"

namespace tilewise::tools {
namespace {

constexpr std::int32_t kMostVariants = 64;
constexpr std::int32_t kKeys = 1024;
constexpr std::int32_t kDim = 128;

}  // namespace

std::string explained(const tw_attention_args& args, const std::string& key) {
  for (const auto& [name, value] : parse_facts(attention_explain(args))) {
    if (name == key) return value;
  }
  return "";
}

Variant running_variant(const tw_attention_args& args) {
  const std::string text = explained(args, "variant");
  const auto open = text.find('(');
  const auto close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return {};
  return {std::stoi(text), text.substr(open + 1, close - open - 1), true, ""};
}

std::vector<Variant> list_variants(tw_dtype dtype, tw_device_kind kind) {
  alignas(64) static std::byte nothing[64];
  auto cache = make<tw_kv_cache>();
  cache.k = cache.v = nothing;
  cache.k_token_stride = cache.v_token_stride = kDim;
  cache.k_head_stride = cache.v_head_stride = kKeys * kDim;
  cache.kv_len = kKeys;
  cache.kv_capacity = kKeys;
  auto args = make<tw_attention_args>();
  args.flags = TW_CAUSAL;
  args.q_dtype = dtype;
  args.batch = args.q_heads = args.kv_heads = 1;
  args.head_dim = kDim;
  args.q_len = kind == TW_DEVICE_CUDA ? 1 : kKeys;
  args.max_kv_len = kKeys;
  args.q = nothing;
  args.o = nothing;
  args.q_token_stride = args.o_token_stride = kDim;
  args.q_head_stride = args.o_head_stride = kKeys * kDim;
  args.kv = &cache;
  auto target = make<tw_target>();
  target.device_kind = kind;
  args.target = &target;

  std::vector<Variant> variants;
  for (args.variant = 1; args.variant <= kMostVariants; ++args.variant) {
    const tw_status status = tw_attention_explain(&args, nullptr, 0, nullptr);
    if (status == TW_INVALID_ARGUMENT) break;  // no such number
    if (status == TW_OK) {
      variants.push_back(running_variant(args));
    } else {
      variants.push_back({args.variant, "", false, tw_last_error()});
    }
  }
  return variants;
}

}  // namespace tilewise::tools
