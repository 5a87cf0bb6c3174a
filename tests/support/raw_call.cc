// Calls by hand.
#include "tests/support/raw_call.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>

namespace tilewise::tests {

RawCall::RawCall(const RawShape& s)
    : q(drawn(1, verify::kQ, s.type, s.batch * s.q_len * s.q_heads * s.head_dim)) {
  args.struct_size = sizeof args;
  kv.struct_size = sizeof kv;
  target.struct_size = sizeof target;
  target.threads = 2;
  args.target = &target;
  args.q_dtype = s.type;
  args.o_dtype = TW_DTYPE_FP32;
  args.batch = static_cast<std::int32_t>(s.batch);
  args.q_len = static_cast<std::int32_t>(s.q_len);
  args.q_heads = static_cast<std::int32_t>(s.q_heads);
  args.kv_heads = static_cast<std::int32_t>(s.kv_heads);
  args.head_dim = static_cast<std::int32_t>(s.head_dim);
  args.q = q.data();
  args.q_head_stride = args.o_head_stride = s.head_dim;
  args.q_token_stride = args.o_token_stride = s.q_heads * s.head_dim;
  args.q_batch_stride = args.o_batch_stride = s.q_len * s.q_heads * s.head_dim;
  args.lse_head_stride = 1;
  args.lse_row_stride = s.q_heads;
  args.lse_batch_stride = s.q_len * s.q_heads;
  args.kv = &kv;
  args.status = &fault;
  o.resize(static_cast<std::size_t>(s.batch * s.q_len * s.q_heads * s.head_dim));
  lse.resize(static_cast<std::size_t>(s.batch * s.q_len * s.q_heads));
}

tw_status RawCall::run(int variant) {
  std::fill(o.begin(), o.end(), NAN);
  std::fill(lse.begin(), lse.end(), NAN);
  fault = tw_status_record{};
  args.o = o.data();
  args.lse = lse.data();
  args.variant = variant;
  std::uint64_t needed = 0;
  const tw_status status = tw_attention_workspace(&args, &needed);
  if (status != TW_OK) return status;
  const verify::Block workspace(static_cast<Index>(needed));
  args.workspace = needed != 0 ? workspace.data() : nullptr;
  args.workspace_bytes = needed;
  return tw_attention(&args);
}

std::vector<std::uint8_t> RawCall::bytes() const {
  const auto* o_bytes = reinterpret_cast<const std::uint8_t*>(o.data());
  const auto* lse_bytes = reinterpret_cast<const std::uint8_t*>(lse.data());
  std::vector<std::uint8_t> all(o_bytes, o_bytes + o.size() * sizeof(float));
  all.insert(all.end(), lse_bytes, lse_bytes + lse.size() * sizeof(float));
  return all;
}

std::vector<std::uint8_t> drawn(std::uint64_t seed, verify::TensorId id, tw_dtype type,
                                Index elements) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(elements * verify::element_bytes(type)));
  const verify::Stream stream(seed, id);
  for (Index e = 0; e < elements; ++e) verify::store(bytes.data(), type, e, stream.normal(e));
  return bytes;
}

Mapping::Mapping(Index bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  data_ = at == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(at);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace tilewise::tests
