// See generate.h.
#include "generate/generate.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "common/machine.h"
#include "common/progress.h"
#include "generate/batch.h"
#include "generate/error.h"
#include "generate/prompts.h"

namespace tilewise::generate {
namespace {

using Prompts = std::vector<std::vector<std::int32_t>>;

struct Stage {
  std::int64_t tokens = 0;
  double seconds = 0;
  double per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

struct Outcome {
  std::vector<std::vector<std::int32_t>> outputs;
  Stage prefill, decode;
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

tw_dtype dtype_of(const std::string& name) {
  if (name == "bf16") return TW_DTYPE_BF16;
  return name == "fp16" ? TW_DTYPE_FP16 : TW_DTYPE_FP32;
}

// Rows that the cache needs for each prompt: the last token is written, but never read again.
std::vector<std::int32_t> max_rows(const Prompts& prompts, const GenerateOptions& options,
                                   const ModelConfig& config) {
  std::vector<std::int32_t> rows;
  for (const auto& prompt : prompts) {
    const std::size_t wanted = prompt.size() + static_cast<std::size_t>(options.max_tokens) - 1;
    if (wanted > static_cast<std::size_t>(config.max_positions)) {
      throw InputError("--max-tokens: " + std::to_string(prompt.size()) + " tokens of prompt and " +
                       std::to_string(options.max_tokens) + " more exceed the model's " +
                       std::to_string(config.max_positions) + " positions");
    }
    rows.push_back(static_cast<std::int32_t>(wanted));
  }
  return rows;
}

std::vector<Request> make_requests(const Prompts& prompts, const GenerateOptions& options) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({prompts[i], {}, Sampler(options.temperature, options.seed, i)});
  }
  return requests;
}

Stage run_prefill(Batch& batch, std::int64_t tokens, std::ostream& err) {
  tools::Progress progress(err, "prefill", tokens);
  const double start = seconds_now();
  batch.prefill([&](std::int64_t done) {
    if (done < tokens) progress.update(done, "tokens");
  });
  return {tokens, seconds_now() - start};
}

std::int64_t output_tokens(const Batch& batch) {
  std::int64_t count = 0;
  for (const Request& request : batch.requests()) {
    count += static_cast<std::int64_t>(request.output.size());
  }
  return count;
}

// Text of a single prompt is shown as it comes.
Outcome run_batch(Batch& batch, const Tokenizer& tokenizer, std::ostream* stream,
                  std::ostream& err) {
  StreamDecoder decoder(tokenizer);
  std::string held;  // the first token's text, until the progress bar is gone
  bool prefilling = true;
  if (stream != nullptr) {
    batch.on_token = [&](std::size_t, std::int32_t token) {
      const std::string text = decoder.push(token);
      if (prefilling) {
        held += text;
      } else {
        *stream << text << std::flush;
      }
    };
  }
  std::int64_t prompt_tokens = 0;
  for (const Request& request : batch.requests()) {
    prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
  }
  Outcome outcome;
  outcome.prefill = run_prefill(batch, prompt_tokens, err);
  prefilling = false;
  if (stream != nullptr) *stream << held << std::flush;
  const std::int64_t first_tokens = output_tokens(batch);
  const double start = seconds_now();
  while (batch.decode()) {
  }
  outcome.decode = {output_tokens(batch) - first_tokens, seconds_now() - start};
  if (stream != nullptr) *stream << decoder.finish() << std::endl;
  for (const Request& request : batch.requests()) outcome.outputs.push_back(request.output);
  return outcome;
}

std::string speed_text(const char* name, const Stage& stage) {
  std::ostringstream text;
  text << std::fixed << name << ": " << stage.tokens << " tokens in " << std::setprecision(3)
       << stage.seconds << " s, " << std::setprecision(1) << stage.per_second() << " tokens/s\n";
  return text.str();
}

void print_json(const Prompts& prompts, const Outcome& outcome, const Tokenizer& tokenizer,
                std::ostream& out) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    list.push_back({{"prompt_ids", prompts[i]},
                    {"output_ids", outcome.outputs[i]},
                    {"text", tokenizer.decode(outcome.outputs[i])}});
  }
  const nlohmann::ordered_json document = {{"prompts", list},
                                           {"prefill_tokens_per_s", outcome.prefill.per_second()},
                                           {"decode_tokens_per_s", outcome.decode.per_second()}};
  out << document.dump(2) << std::endl;
}

void print_texts(const Outcome& outcome, const Tokenizer& tokenizer, std::ostream& out) {
  for (std::size_t i = 0; i < outcome.outputs.size(); ++i) {
    out << "--- prompt " << i + 1 << " ---\n" << tokenizer.decode(outcome.outputs[i]) << std::endl;
  }
}

Outcome generate(const GenerateOptions& options, const ModelConfig& config, const Prompts& prompts,
                 const Tokenizer& tokenizer, std::ostream& out, std::ostream& err) {
  const tw_dtype cache_dtype = dtype_of(options.cache_dtype);
  const std::vector<std::int32_t> rows = max_rows(prompts, options, config);
  const Weights weights(options.model_dir + "/model.safetensors", config);
  ThreadPool pool(options.threads > 0 ? options.threads : tools::read_machine().cores);
  Model model(config, weights, pool, *std::max_element(rows.begin(), rows.end()));
  KvCache cache({config.layers, config.kv_heads, config.head_dim, cache_dtype, options.page_size},
                rows);
  BatchLimits limits{options.max_tokens, {}, config.vocab};
  if (!options.ignore_eos) limits.end_tokens = config.end_tokens;
  Batch batch(model, cache, cache_dtype, limits, make_requests(prompts, options));
  const bool streams = prompts.size() == 1 && !options.json;
  return run_batch(batch, tokenizer, streams ? &out : nullptr, err);
}

void check_backend(const GenerateOptions& options) {
  if (options.backend != "cpu") {
    throw InputError("--backend: " + options.backend +
                     " is not there yet; this version runs on cpu");
  }
}

void run(const GenerateOptions& options, std::ostream& out, std::ostream& err) {
  check_backend(options);
  const ModelConfig config = read_config(options.model_dir);
  const Tokenizer tokenizer(read_json_file(options.model_dir + "/tokenizer.json"));
  if (tokenizer.vocab_size() > config.vocab) {
    throw InputError("--model: tokenizer.json has more tokens than the model");
  }
  const Prompts prompts = read_prompts(options, tokenizer);
  Outcome outcome{Prompts(prompts.size()), {}, {}};
  if (options.max_tokens > 0) {
    outcome = generate(options, config, prompts, tokenizer, out, err);
    err << speed_text("prefill", outcome.prefill) << speed_text("decode", outcome.decode);
  }
  if (options.json) {
    print_json(prompts, outcome, tokenizer, out);
  } else if (prompts.size() > 1) {
    print_texts(outcome, tokenizer, out);
  }
}

}  // namespace

int run_generate(const GenerateOptions& options, std::ostream& out, std::ostream& err) {
  try {
    run(options, out, err);
    return 0;
  } catch (const InputError& error) {
    err << "tilewise generate: " << error.what() << std::endl;
    return 2;
  } catch (const LibraryError& error) {
    err << "tilewise generate: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace tilewise::generate
