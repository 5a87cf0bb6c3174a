// From a problem to tw_attention_args and back.
#include "verify/call.h"

#include <algorithm>
#include <limits>

#include "verify/device_call.h"

namespace tilewise::verify {
namespace {

// A caller's own loop: last worker first, on the calling thread.
void run_backwards(void*, std::int64_t tasks, tw_task task, void* context) {
  for (std::int64_t i = tasks; i-- > 0;) task(context, i);
}

constexpr Index kRowOrigin = 2;  // rows of ragged tensors that belong to nobody, with slack

void append_bytes(const std::uint8_t* from, Index bytes, std::vector<std::uint8_t>* to) {
  to->insert(to->end(), from, from + bytes);
}

// tw_attention over copies of the arrays in device memory.
void attend_on_device(const tw_attention_args& args, const std::vector<const Block*>& blocks,
                      Answer* answer) {
  DeviceCall call(args, blocks);
  answer->status = tw_attention(&call.args());
  answer->error = tw_last_error();
  answer->damage = call.finish();
}

}  // namespace

Call::Call(const Problem& p) : p_(p), cache_(p) {
  const Case& c = p.c();
  args_.struct_size = sizeof args_;
  target_.struct_size = sizeof target_;
  target_.threads = c.threads;
  if (c.hook) target_.parallel_for = run_backwards;
  if (on_cuda()) use_device(&target_);
  args_.target = &target_;
  args_.q_dtype = c.q_type;
  args_.kv_dtype = c.kv_type;
  args_.batch = static_cast<std::int32_t>(c.batch());
  args_.q_heads = static_cast<std::int32_t>(c.q_heads);
  args_.kv_heads = static_cast<std::int32_t>(c.kv_heads);
  args_.head_dim = static_cast<std::int32_t>(c.head_dim);
  args_.v_head_dim = static_cast<std::int32_t>(c.v_head_dim);
  kv_ = cache_.args();
  args_.kv = &kv_;
  args_.max_kv_len = static_cast<std::int32_t>(c.slack ? 3 * c.most_keys() + 100 : c.most_keys());
  args_.row_class = c.row_class;
  lay_out_q();
  make_positions();
  set_semantics();
  if (c.mask != MaskKind::kNone) make_mask();
  if (c.append != Append::kNone) lay_out_append();
}

Index Call::line(Index r, Index i) const {
  return p_.first_row(r) + i + (p_.c().ragged ? at(q_indptr_, Index{0}) : 0);
}

Index Call::offset(const Strides& s, Index r, Index i, Index h) const {
  return p_.c().ragged ? s.of(0, line(r, i), h) : s.of(r, i, h);
}

Strides Call::rows_of(Index heads, Index dim, QOrder order) const {
  const Index rows = p_.c().ragged ? total_ : p_.c().most_rows();
  const bool by_head = order == QOrder::kHeadMajor;
  const Index wide = dim + 2;
  Strides s;
  s.head = by_head ? rows * wide : wide;
  s.token = by_head ? wide : heads * wide;
  s.batch = p_.c().ragged ? 0 : rows * heads * wide + 2;
  s.extent = p_.c().ragged ? rows * heads * wide : p_.c().batch() * s.batch;
  if (order == QOrder::kReversedHeads) {
    s.head = -s.head;
    s.origin = (heads - 1) * wide;
  }
  return s;
}

void Call::lay_out_q() {
  const Case& c = p_.c();
  const Index origin = c.slack ? kRowOrigin : 0;
  for (Index r = 0; r <= c.batch(); ++r)
    q_indptr_.push_back(static_cast<std::int32_t>(p_.first_row(r) + origin));
  total_ = p_.rows() + origin + (c.slack ? 3 : 0);
  if (c.ragged) {
    args_.q_indptr = q_indptr_.data();
    args_.total_q = total_;
    if (!c.slack) args_.max_q_len = static_cast<std::int32_t>(c.most_rows());
  } else {
    args_.q_len = static_cast<std::int32_t>(c.most_rows());
  }
  q_at_ = rows_of(c.q_heads, c.head_dim, c.q_order);
  const QOrder out = c.q_order == QOrder::kTokenMajor ? QOrder::kHeadMajor : QOrder::kTokenMajor;
  o_at_ = rows_of(c.q_heads, c.v_dim(), out);
  lse_at_ = rows_of(c.q_heads, 1,
                    c.q_order == QOrder::kHeadMajor ? QOrder::kHeadMajor : QOrder::kTokenMajor);
  q_ = Block(q_at_.extent * element_bytes(c.q_type), 4);
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index row = 0; row < p_.q_len(r) * c.q_heads; ++row) {
      const Index i = row / c.q_heads, h = row % c.q_heads;
      const float* values = p_.q(p_.first_row(r) + i, h);
      for (Index d = 0; d < c.head_dim; ++d)
        store(q_.data(), c.q_type, offset(q_at_, r, i, h) + d, static_cast<double>(values[d]));
    }
  }
  args_.q = q_.data() + q_at_.origin * element_bytes(c.q_type);
  args_.q_batch_stride = q_at_.batch, args_.q_token_stride = q_at_.token,
  args_.q_head_stride = q_at_.head;
  args_.o_batch_stride = o_at_.batch, args_.o_token_stride = o_at_.token,
  args_.o_head_stride = o_at_.head;
  args_.lse_batch_stride = lse_at_.batch, args_.lse_row_stride = lse_at_.token,
  args_.lse_head_stride = lse_at_.head;
}

void Call::make_positions() {
  const Case& c = p_.c();
  positions_.assign(static_cast<std::size_t>(c.ragged ? total_ : p_.rows()), INT32_MIN);
  for (Index r = 0; r < c.batch(); ++r) {
    start_.push_back(p_.q_len(r) > 0 ? static_cast<std::int32_t>(p_.position(r, 0)) : 0);
    for (Index i = 0; i < p_.q_len(r); ++i)
      at(positions_, line(r, i)) = static_cast<std::int32_t>(p_.position(r, i));
  }
  if (c.positions == Positions::kStart) args_.q_start = start_.data();
  if (c.positions == Positions::kTree) args_.q_positions = positions_.data();
}

void Call::set_semantics() {
  const Case& c = p_.c();
  if (c.causal) args_.flags |= TW_CAUSAL;
  if (c.window_left != kOff) args_.flags |= TW_WINDOW_LEFT;
  if (c.window_right != kOff) args_.flags |= TW_WINDOW_RIGHT;
  args_.window_left = static_cast<std::int32_t>(c.window_left);
  args_.window_right = static_cast<std::int32_t>(c.window_right);
  args_.scale = c.scale;
  args_.softcap = c.softcap;
  if (!p_.sinks.empty()) args_.sinks = p_.sinks.data();
  if (p_.slopes.empty()) return;
  // Rows of slopes stand two apart, with NaN between.
  args_.alibi_batch_stride = p_.slope_rows() > 1 ? c.q_heads + 2 : 0;
  for (Index r = 0; r < p_.slope_rows(); ++r) {
    for (Index h = 0; h < c.q_heads; ++h) slopes_.push_back(p_.slope(r, h));
    slopes_.insert(slopes_.end(), 2, std::numeric_limits<float>::quiet_NaN());
  }
  args_.alibi_slopes = slopes_.data();
}

void Call::set_mask_strides(Index width) {
  const Case& c = p_.c();
  const Index rows = c.most_rows();
  mask_.row_stride = width;
  if (c.mask == MaskKind::kPerRequest || c.mask == MaskKind::kTree)
    mask_.batch_stride = rows * width + 1;
  if (c.mask == MaskKind::kPerHead) {
    mask_.head_stride = rows * width + 5;
    mask_.batch_stride = c.q_heads * mask_.head_stride;
  }
  if (c.mask == MaskKind::kRagged) {
    mask_.head_stride = width;
    mask_.row_stride = c.q_heads * width;
  }
}

void Call::make_mask() {
  const Case& c = p_.c();
  Index width = 1 + (c.slack ? 7 : 0), bytes = 0;
  for (Index r = 0; r < c.batch(); ++r)
    width = std::max(width, p_.kv_len(r) - p_.mask_first_key(r));
  set_mask_strides(width);
  for (Index r = 0; r < c.batch(); ++r) {
    mask_first_.push_back(static_cast<std::int32_t>(p_.mask_first_key(r)));
    mask_offset_.push_back(3 + p_.first_row(r) * mask_.row_stride);
  }
  const auto base = [&](Index r) {
    return c.mask == MaskKind::kRagged ? at(mask_offset_, r) : r * mask_.batch_stride;
  };
  for (Index r = 0; r < c.batch(); ++r)
    bytes = std::max(bytes, base(r) + (c.q_heads - 1) * mask_.head_stride +
                                c.most_rows() * mask_.row_stride + width);
  mask_bytes_ = Block(bytes, 1, 0x80);
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index n = 0; n < c.q_heads * p_.q_len(r); ++n) {
      const Index h = n / p_.q_len(r), i = n % p_.q_len(r);
      std::uint8_t* row =
          mask_bytes_.data() + base(r) + h * mask_.head_stride + i * mask_.row_stride;
      for (Index j = p_.mask_first_key(r); j < p_.kv_len(r); ++j)
        row[j - p_.mask_first_key(r)] =
            static_cast<std::uint8_t>(p_.mask_keeps(r, h, i, j) ? 1 + j % 255 : 0);
    }
  }
  mask_.struct_size = sizeof mask_;
  mask_.width = static_cast<std::int32_t>(width);
  mask_.data = mask_bytes_.data();
  mask_.bytes = c.slack && c.mask != MaskKind::kRagged ? 0 : bytes;
  if (c.mask == MaskKind::kRagged) mask_.offset = mask_offset_.data();
  if (c.mask == MaskKind::kRagged || c.mask == MaskKind::kTree)
    mask_.first_key = mask_first_.data();
  args_.mask = &mask_;
}

void Call::lay_out_append() {
  const Case& c = p_.c();
  const tw_dtype type = c.append_type();
  const auto strides = [&](Index dim, QOrder order) {
    Strides s = rows_of(c.kv_heads, dim + 6, order);  // rows stay 16 bytes apart in every type
    s.batch = (s.batch + 7) / 8 * 8;
    s.extent += 8 * c.batch();
    return s;
  };
  const Strides k = strides(c.head_dim, QOrder::kHeadMajor),
                v = strides(c.v_dim(), QOrder::kTokenMajor);
  new_k_ = Block(k.extent * element_bytes(type), 16);
  new_v_ = Block(v.extent * element_bytes(type), 16);
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index n = 0; n < p_.q_len(r) * c.kv_heads; ++n) {
      const Index i = n / c.kv_heads, h = n % c.kv_heads;
      const Index key = p_.first_key(r) + p_.kv_len(r) - p_.q_len(r) + i;
      for (Index d = 0; d < c.head_dim; ++d)
        store(new_k_.data(), type, offset(k, r, i, h) + d,
              static_cast<double>(p_.new_k(key, h)[d]));
      for (Index d = 0; d < c.v_dim(); ++d)
        store(new_v_.data(), type, offset(v, r, i, h) + d,
              static_cast<double>(p_.new_v(key, h)[d]));
    }
  }
  append_.struct_size = sizeof append_;
  append_.dtype = c.append == Append::kConverted ? type : TW_DTYPE_DEFAULT;
  append_.k = new_k_.data();
  append_.v = new_v_.data();
  append_.k_batch_stride = k.batch, append_.k_token_stride = k.token,
  append_.k_head_stride = k.head;
  append_.v_batch_stride = v.batch, append_.v_token_stride = v.token,
  append_.v_head_stride = v.head;
  args_.append = &append_;
}

// Reads every row, puts poison back in its place, and then looks for bytes that are not poison.
void Call::read_rows(const Block& o, const Block& lse, tw_dtype o_type, Answer* answer) {
  const Case& c = p_.c();
  const Index bytes = c.v_dim() * element_bytes(o_type);
  for (Index r = 0; r < c.batch(); ++r) {
    for (Index n = 0; n < p_.q_len(r) * c.q_heads; ++n) {
      const Index first = offset(o_at_, r, n / c.q_heads, n % c.q_heads);
      for (Index d = 0; d < c.v_dim(); ++d)
        answer->o.push_back(static_cast<float>(load(o.data(), o_type, first + d)));
      std::uint8_t* row = o.data() + first * element_bytes(o_type);
      append_bytes(row, bytes, &answer->bytes);
      std::fill(row, row + bytes, kPoison);
    }
  }
  for (Index r = 0; c.lse && r < c.batch(); ++r) {
    for (Index n = 0; n < p_.q_len(r) * c.q_heads; ++n) {
      const Index place = offset(lse_at_, r, n / c.q_heads, n % c.q_heads);
      answer->lse.push_back(static_cast<float>(load(lse.data(), TW_DTYPE_FP32, place)));
      append_bytes(lse.data() + 4 * place, 4, &answer->bytes);
      std::fill(lse.data() + 4 * place, lse.data() + 4 * place + 4, kPoison);
    }
  }
  if (!o.is_all(kPoison) || !o.guards_intact()) answer->damage = "wrote beside the rows of o";
  if (!lse.is_all(kPoison) || !lse.guards_intact()) answer->damage = "wrote beside the rows of lse";
}

std::vector<const Block*> Call::blocks() const {
  return {&q_, &new_k_, &new_v_, &mask_bytes_, &cache_.k_memory(), &cache_.v_memory()};
}

Answer Call::run(const Choice& choice) {
  const Case& c = p_.c();
  const bool on_device = on_cuda() && choice.variant != kReference;
  tw_attention_args args = args_;
  tw_target target = target_;
  Answer answer;
  const tw_dtype o_type = choice.o_type != TW_DTYPE_DEFAULT ? choice.o_type : c.output_type();
  const Block o(o_at_.extent * element_bytes(o_type), 4);
  const Block lse(c.lse ? lse_at_.extent * 4 : 0, 4);
  if (choice.threads != 0) target.threads = choice.threads;
  if (!on_device) target.device_kind = TW_DEVICE_CPU;  // the oracle
  if (args.target != nullptr) args.target = &target;
  args.o_dtype = choice.o_type != TW_DTYPE_DEFAULT ? choice.o_type : c.o_type;
  args.o = o.data();
  if (c.lse) args.lse = reinterpret_cast<float*>(lse.data());
  args.variant = choice.variant;
  args.status = &answer.fault;
  std::uint64_t needed = 0;
  answer.status = tw_attention_workspace(&args, &needed);
  const Block workspace(static_cast<Index>(needed), 0, choice.workspace_fill);
  args.workspace = needed != 0 ? workspace.data() : nullptr;
  args.workspace_bytes = needed;
  answer.error = tw_last_error();
  if (answer.status == TW_OK && on_device) {
    std::vector<const Block*> memory = blocks();
    memory.insert(memory.end(), {&o, &lse, &workspace});
    attend_on_device(args, memory, &answer);
  } else if (answer.status == TW_OK) {
    answer.status = tw_attention(&args);
    answer.error = tw_last_error();
  }
  look_for_damage(o, lse, workspace, o_type, &answer);
  return answer;
}

void Call::look_for_damage(const Block& o, const Block& lse, const Block& workspace,
                           tw_dtype o_type, Answer* answer) {
  read_rows(o, lse, o_type, answer);
  if (!workspace.guards_intact()) answer->damage = "wrote beside the workspace";
  const std::string cache = cache_.check_and_restore();
  if (answer->status == TW_OK && !cache.empty()) answer->damage = cache;
  if (!q_.guards_intact()) answer->damage = "wrote beside q";
}

Answer attend(const Problem& p, const Choice& choice) { return Call(p).run(choice); }

}  // namespace tilewise::verify
