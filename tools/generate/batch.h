// A batch of prompts on its way through a model: all prompts are read first, in steps of limited
// size that may hold rows of several; then every request that is not finished gets one token a
// step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "generate/model.h"
#include "generate/sampler.h"

namespace tilewise::generate {

struct BatchLimits {
  std::int32_t max_tokens;               // of each request, at least 1
  std::vector<std::int32_t> end_tokens;  // empty = never stop early
  std::int32_t vocab;
};

struct Request {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> output;  // without the end token
  Sampler sampler;
  std::int32_t cached = 0;  // rows in the cache
  std::int32_t next = -1;   // token that the next step reads; -1 = none yet
  bool finished = false;
};

class Batch {
 public:
  // Every prompt holds at least one token.
  Batch(Model& model, KvCache& cache, tw_dtype cache_dtype, BatchLimits limits,
        std::vector<Request> requests);

  // Reads all prompts and chooses each one's first token. `progress` gets the rows done so far.
  void prefill(const std::function<void(std::int64_t)>& progress);
  // One more token for every request that is not finished; false if all are. Returns before any
  // work then.
  bool decode();

  const std::vector<Request>& requests() const { return requests_; }
  // Called with request and token for each token of an output.
  std::function<void(std::size_t, std::int32_t)> on_token;

 private:
  Step next_prefill_step() const;
  void run(const Step& step);
  void accept(std::size_t request, std::int32_t token);

  Model& model_;
  KvCache& cache_;
  tw_dtype cache_dtype_;
  BatchLimits limits_;
  std::vector<Request> requests_;
};

}  // namespace tilewise::generate
