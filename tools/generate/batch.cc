// See batch.h.
#include "generate/batch.h"

#include <algorithm>
#include <utility>

namespace tilewise::generate {
namespace {

// Rows of a prefill step: enough to keep the products at full speed, few enough to show progress.
constexpr std::int32_t kStepRows = 512;

}  // namespace

Batch::Batch(Model& model, KvCache& cache, tw_dtype cache_dtype, BatchLimits limits,
             std::vector<Request> requests)
    : model_(model),
      cache_(cache),
      cache_dtype_(cache_dtype),
      limits_(std::move(limits)),
      requests_(std::move(requests)) {}

// The next rows of the prompts that are not in the cache yet, first come first served.
Step Batch::next_prefill_step() const {
  Step step;
  for (std::size_t i = 0; i < requests_.size() && step.rows() < kStepRows; ++i) {
    const Request& r = requests_[i];
    const auto length = static_cast<std::int32_t>(r.prompt.size());
    const std::int32_t rows = std::min(length - r.cached, kStepRows - step.rows());
    if (rows <= 0) continue;
    const std::int32_t end = r.cached + rows;
    step.add(static_cast<std::int32_t>(i), end, r.prompt.data() + r.cached, r.prompt.data() + end);
    if (end == length) step.wanted.push_back(step.rows() - 1);
  }
  return step;
}

void Batch::prefill(const std::function<void(std::int64_t)>& progress) {
  std::int64_t done = 0;
  for (Step step = next_prefill_step(); step.rows() > 0; step = next_prefill_step()) {
    run(step);
    done += step.rows();
    progress(done);
  }
}

bool Batch::decode() {
  Step step;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const Request& r = requests_[i];
    if (r.finished) continue;
    step.add(static_cast<std::int32_t>(i), r.cached + 1, &r.next, &r.next + 1);
    step.wanted.push_back(step.rows() - 1);
  }
  if (step.rows() == 0) return false;
  run(step);
  return true;
}

void Batch::run(const Step& step) {
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    cache_.reserve(step.requests[i], step.kv_lens[i]);
    requests_[static_cast<std::size_t>(step.requests[i])].cached = step.kv_lens[i];
  }
  const float* logits = model_.forward(step, cache_, cache_dtype_);
  std::size_t owner = 0;  // request of the step whose rows hold the wanted one
  for (const std::int32_t row : step.wanted) {
    while (step.indptr[owner + 1] <= row) ++owner;
    const auto request = static_cast<std::size_t>(step.requests[owner]);
    accept(request, requests_[request].sampler.next(logits, limits_.vocab));
    logits += limits_.vocab;
  }
}

void Batch::accept(std::size_t request, std::int32_t token) {
  Request& r = requests_[request];
  const auto& ends = limits_.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
    r.finished = true;
  } else {
    r.output.push_back(token);
    r.next = token;
    if (on_token) on_token(request, token);
    r.finished = static_cast<std::int32_t>(r.output.size()) == limits_.max_tokens;
  }
  if (r.finished) cache_.release(static_cast<std::int32_t>(request));
}

}  // namespace tilewise::generate
