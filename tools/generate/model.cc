// See model.h.
#include "generate/model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "generate/gemm.h"
#include "generate/kernels.h"

namespace tilewise::generate {
namespace {

void check(tw_status status, const char* call) {
  if (status == TW_OK) return;
  throw LibraryError(std::string(call) + ": " + tw_status_string(status) + ": " + tw_last_error());
}

// A fault means that the runner gave the library a wrong length or page: a bug worth stopping for.
void check_fault(const tw_status_record& fault, const char* call) {
  if (fault.code == TW_FAULT_NONE) return;
  throw LibraryError(std::string(call) + ": fault " + std::to_string(fault.code) + " in " +
                     std::to_string(fault.what) + " of request " + std::to_string(fault.request) +
                     ", value " + std::to_string(fault.value));
}

void grow(std::vector<float>* buffer, std::int64_t floats) {
  if (buffer->size() < static_cast<std::size_t>(floats)) {
    buffer->resize(static_cast<std::size_t>(floats));
  }
}

}  // namespace

void Step::add(std::int32_t request, std::int32_t kv_len, const std::int32_t* begin,
               const std::int32_t* end) {
  tokens.insert(tokens.end(), begin, end);
  indptr.push_back(static_cast<std::int32_t>(tokens.size()));
  requests.push_back(request);
  kv_lens.push_back(kv_len);
}

Model::Model(const ModelConfig& config, const Weights& weights, ThreadPool& pool,
             std::int32_t max_positions)
    : config_(config), weights_(weights), pool_(pool), max_positions_(max_positions) {
  target_.struct_size = sizeof(target_);
  target_.device_kind = TW_DEVICE_CPU;
  target_.threads = pool.threads();
  target_.parallel_for = &ThreadPool::parallel_for;
  target_.parallel_user = &pool;
  const std::int32_t pairs = config.head_dim / 2;
  for (std::int32_t p = 0; p < max_positions; ++p) {
    for (std::int32_t d = 0; d < pairs; ++d) {
      const double angle = p * std::pow(config.rope_base, -2.0 * d / config.head_dim);
      rope_.cos.push_back(static_cast<float>(std::cos(angle)));
      rope_.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

// Rows are independent: a few are quicker done here than handed out.
template <class Body>
void Model::for_rows(std::int64_t rows, Body body) {
  constexpr std::int64_t kBlock = 8;
  const auto block = [&](std::int64_t b) {
    for (std::int64_t r = b * kBlock; r < std::min(rows, (b + 1) * kBlock); ++r) body(r);
  };
  pool_.for_each((rows + kBlock - 1) / kBlock, block);
}

void Model::embed(const Step& step) {
  for_rows(step.rows(), [&](std::int64_t r) {
    const std::int64_t token = step.tokens[static_cast<std::size_t>(r)];
    widen_bf16(weights_.embedding + token * config_.hidden, config_.hidden,
               hidden_.data() + r * config_.hidden);
  });
}

// normed = norm(hidden), after hidden += delta if that is asked for.
void Model::norm_rows(const std::vector<float>& weight, bool add_delta, std::int64_t rows) {
  const std::int64_t n = config_.hidden;
  for_rows(rows, [&](std::int64_t r) {
    if (add_delta) add_row(hidden_.data() + r * n, delta_.data() + r * n, n);
    rms_norm_row(hidden_.data() + r * n, weight.data(), n, config_.rms_eps, normed_.data() + r * n);
  });
}

void Model::rotate_and_store(const Step& step, const tw_kv_cache& kv, tw_dtype cache_dtype) {
  const std::int64_t q_columns = std::int64_t{config_.q_heads} * config_.head_dim;
  const std::int64_t kv_columns = std::int64_t{config_.kv_heads} * config_.head_dim;
  tw_rope_table rope{};
  rope.struct_size = sizeof(rope);
  rope.dtype = TW_DTYPE_FP32;
  rope.cos = rope_.cos.data();
  rope.sin = rope_.sin.data();
  rope.cos_row_stride = rope.sin_row_stride = config_.head_dim / 2;
  rope.rows = max_positions_;
  rope.rotary_dim = config_.head_dim;
  rope.pairs = TW_PAIRS_HALVES;
  tw_status_record fault{};
  tw_qk_prep_args args{};
  args.struct_size = sizeof(args);
  args.dtype = TW_DTYPE_FP32;
  args.kv_dtype = cache_dtype;
  args.target = &target_;
  args.batch = static_cast<std::int32_t>(step.requests.size());
  args.q_heads = config_.q_heads;
  args.kv_heads = config_.kv_heads;
  args.head_dim = config_.head_dim;
  args.max_kv_len = max_positions_;
  args.q_indptr = step.indptr.data();
  args.total_q = step.rows();
  args.q = args.q_out = qkv_.data();
  args.k = qkv_.data() + q_columns;
  args.v = qkv_.data() + q_columns + kv_columns;
  args.q_token_stride = args.k_token_stride = args.v_token_stride = q_columns + 2 * kv_columns;
  args.q_out_token_stride = args.q_token_stride;
  args.q_head_stride = args.k_head_stride = args.v_head_stride = config_.head_dim;
  args.q_out_head_stride = config_.head_dim;
  args.norm = TW_NORM_NONE;
  args.rope = &rope;
  args.kv = &kv;
  args.status = &fault;
  check(tw_qk_prep(&args), "tw_qk_prep");
  check_fault(fault, "tw_qk_prep");
}

void Model::attend(const Step& step, const tw_kv_cache& kv, tw_dtype cache_dtype) {
  const std::int64_t q_columns = std::int64_t{config_.q_heads} * config_.head_dim;
  const std::int64_t kv_columns = std::int64_t{config_.kv_heads} * config_.head_dim;
  tw_status_record fault{};
  tw_attention_args args{};
  args.struct_size = sizeof(args);
  args.flags = TW_CAUSAL;
  args.target = &target_;
  args.q_dtype = TW_DTYPE_FP32;
  args.kv_dtype = cache_dtype;
  args.batch = static_cast<std::int32_t>(step.requests.size());
  args.q_heads = config_.q_heads;
  args.kv_heads = config_.kv_heads;
  args.head_dim = config_.head_dim;
  args.max_q_len = step.rows();
  args.max_kv_len = max_positions_;
  args.q_indptr = step.indptr.data();
  args.total_q = step.rows();
  args.q = qkv_.data();
  args.q_token_stride = q_columns + 2 * kv_columns;
  args.q_head_stride = config_.head_dim;
  args.o = attended_.data();
  args.o_token_stride = q_columns;
  args.o_head_stride = config_.head_dim;
  args.kv = &kv;
  args.status = &fault;
  std::uint64_t bytes = 0;
  check(tw_attention_workspace(&args, &bytes), "tw_attention_workspace");
  args.workspace = workspace(bytes);
  args.workspace_bytes = bytes;
  check(tw_attention(&args), "tw_attention");
  check_fault(fault, "tw_attention");
}

// At least `bytes` at an address that is a multiple of 256.
std::byte* Model::workspace(std::uint64_t bytes) {
  constexpr std::size_t kAlignment = 256;
  if (workspace_.size() < bytes + kAlignment) workspace_.resize(bytes + kAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
  return workspace_.data() + (kAlignment - address % kAlignment) % kAlignment;
}

// delta = down(silu(gate(normed)) * up(normed))
void Model::feed_forward(const LayerWeights& layer, std::int64_t rows) {
  const std::int64_t n = config_.feed_forward;
  float* gate_up = gate_up_.data();
  multiply(pool_, {normed_.data(), config_.hidden, rows, config_.hidden},
           {{layer.gate, n, gate_up, 2 * n}, {layer.up, n, gate_up + n, 2 * n}});
  for_rows(rows,
           [&](std::int64_t r) { silu_multiply(gate_up + r * 2 * n, gate_up + r * 2 * n + n, n); });
  multiply(pool_, {gate_up, 2 * n, rows, n},
           {{layer.down, config_.hidden, delta_.data(), config_.hidden}});
}

const float* Model::head(const Step& step) {
  const std::int64_t n = config_.hidden;
  const auto wanted = static_cast<std::int64_t>(step.wanted.size());
  grow(&logits_, wanted * config_.vocab);
  for (std::int64_t i = 0; i < wanted; ++i) {
    const std::int64_t row = step.wanted[static_cast<std::size_t>(i)];
    add_row(hidden_.data() + row * n, delta_.data() + row * n, n);
    rms_norm_row(hidden_.data() + row * n, weights_.final_norm.data(), n, config_.rms_eps,
                 normed_.data() + i * n);
  }
  if (wanted > 0) {
    multiply(pool_, {normed_.data(), n, wanted, n},
             {{weights_.head, config_.vocab, logits_.data(), config_.vocab}});
  }
  return logits_.data();
}

const float* Model::forward(const Step& step, KvCache& cache, tw_dtype cache_dtype) {
  const std::int64_t rows = step.rows();
  const std::int64_t q_columns = std::int64_t{config_.q_heads} * config_.head_dim;
  const std::int64_t kv_columns = std::int64_t{config_.kv_heads} * config_.head_dim;
  const std::int64_t columns = q_columns + 2 * kv_columns;
  for (auto* buffer : {&hidden_, &normed_, &delta_}) grow(buffer, rows * config_.hidden);
  grow(&qkv_, rows * columns);
  grow(&attended_, rows * q_columns);
  grow(&gate_up_, rows * 2 * config_.feed_forward);

  embed(step);
  for (std::int32_t i = 0; i < config_.layers; ++i) {
    const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(i)];
    const tw_kv_cache kv = cache.view(i, step.requests.data(), step.kv_lens.data());
    norm_rows(layer.attention_norm, /*add_delta=*/i > 0, rows);
    multiply(pool_, {normed_.data(), config_.hidden, rows, config_.hidden},
             {{layer.q, q_columns, qkv_.data(), columns},
              {layer.k, kv_columns, qkv_.data() + q_columns, columns},
              {layer.v, kv_columns, qkv_.data() + q_columns + kv_columns, columns}});
    rotate_and_store(step, kv, cache_dtype);
    attend(step, kv, cache_dtype);
    multiply(pool_, {attended_.data(), q_columns, rows, q_columns},
             {{layer.o, config_.hidden, delta_.data(), config_.hidden}});
    norm_rows(layer.feed_forward_norm, /*add_delta=*/true, rows);
    feed_forward(layer, rows);
  }
  return head(step);
}

}  // namespace tilewise::generate
