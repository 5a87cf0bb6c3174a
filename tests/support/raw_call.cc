// Calls by hand.
#include "tests/support/raw_call.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "verify/device_call.h"

namespace tilewise::tests {

RawCall::RawCall(const RawShape& s)
    : q(drawn(1, verify::kQ, s.type, s.batch * s.q_len * s.q_heads * s.head_dim)) {
  args.struct_size = sizeof args;
  kv.struct_size = sizeof kv;
  target.struct_size = sizeof target;
  target.threads = 2;
  if (verify::on_cuda()) verify::use_device(&target);
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
  const tw_device_kind kind = target.device_kind;
  if (variant == verify::kReference) target.device_kind = TW_DEVICE_CPU;
  const tw_status status = attend(verify::on_cuda() && variant != verify::kReference);
  target.device_kind = kind;
  return status;
}

tw_status RawCall::attend(bool on_device) {
  std::uint64_t needed = 0;
  tw_status status = tw_attention_workspace(&args, &needed);
  error_ = tw_last_error();
  if (status != TW_OK) return status;
  const verify::Block workspace(static_cast<Index>(needed));
  args.workspace = needed != 0 ? workspace.data() : nullptr;
  args.workspace_bytes = needed;
  if (!on_device) {
    status = tw_attention(&args);
    error_ = tw_last_error();
    return status;
  }
  verify::DeviceCall call(args, {&workspace});
  status = tw_attention(&call.args());
  error_ = tw_last_error();
  EXPECT_EQ(call.finish(), "");
  EXPECT_TRUE(workspace.guards_intact());
  return status;
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

void expect_same_bytes(RawCall& a, RawCall& b) {
  std::vector<int> numbers;
  if (!verify::on_cuda()) numbers.push_back(verify::kReference);
  for (const verify::VariantInfo& info : verify::variants()) numbers.push_back(info.number);
  int compared = 0;
  for (const int variant : numbers) {
    const tw_status status = a.run(variant);
    if (status == TW_UNSUPPORTED && variant > verify::kSimdSplit) continue;
    ASSERT_EQ(status, TW_OK) << a.error();
    ASSERT_EQ(b.run(variant), TW_OK) << b.error();
    EXPECT_EQ(a.bytes(), b.bytes()) << "variant " << variant;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

Mapping::Mapping(Index bytes) : bytes_(static_cast<std::size_t>(bytes)) {
  if (verify::on_cuda()) {
    memory_ = std::make_unique<tools::DeviceMemory>(bytes_);
    if (memory_->address() == 0 || !memory_->fill(0, bytes_)) return;
    data_ = reinterpret_cast<std::uint8_t*>(memory_->address());
    return;
  }
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  data_ = at == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(at);
}

Mapping::~Mapping() {
  if (data_ != nullptr && memory_ == nullptr) munmap(data_, bytes_);
}

void Mapping::write(Index offset, const std::uint8_t* from, Index bytes) const {
  const auto size = static_cast<std::size_t>(bytes);
  if (memory_ == nullptr) {
    std::memcpy(data_ + offset, from, size);
  } else {
    EXPECT_TRUE(memory_->upload(static_cast<std::size_t>(offset), from, size));
  }
}

std::vector<std::uint8_t> Mapping::read(Index offset, Index bytes) const {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(bytes));
  if (memory_ == nullptr) {
    std::copy_n(data_ + offset, bytes, result.begin());
  } else {
    EXPECT_TRUE(memory_->download(result.data(), static_cast<std::size_t>(offset), result.size()));
  }
  return result;
}

}  // namespace tilewise::tests
