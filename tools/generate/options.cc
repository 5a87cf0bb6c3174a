// See options.h.
#include "generate/options.h"

#include <CLI/CLI.hpp>

namespace tilewise::generate {
namespace {

constexpr int kMaxTokens = 1 << 20;
constexpr int kMaxPageSize = 1 << 16;
constexpr int kMaxThreads = 1024;
constexpr double kMaxTemperature = 1e6;

// Both options append as they are parsed, so that texts and files keep their order.
void add_prompt_options(CLI::App& command, GenerateOptions& options) {
  const auto append = [&options](bool is_file) {
    return [&options, is_file](const std::string& value) {
      options.prompts.push_back({is_file, value});
    };
  };
  command
      .add_option_function<std::string>("--prompt", append(false),
                                        "Text to continue; repeat it for a batch")
      ->type_name("TEXT")
      ->trigger_on_parse();
  command
      .add_option_function<std::string>("--prompt-file", append(true),
                                        "File whose bytes are a prompt; may be repeated")
      ->type_name("FILE")
      ->trigger_on_parse();
}

}  // namespace

CLI::App* add_generate_command(CLI::App& app, GenerateOptions& options) {
  CLI::App* command = app.add_subcommand("generate", "Write text with a model from a folder");
  command->add_option("--model", options.model_dir, "Folder of the model")
      ->type_name("DIR")
      ->required();
  add_prompt_options(*command, options);
  command->add_flag("--chat", options.chat, "Each prompt is a user's message to an assistant");
  command->add_flag("--ids", options.ids, "Prompts are token numbers, not text");
  command
      ->add_option("--max-tokens", options.max_tokens,
                   "Tokens to write for each prompt; 0 reads the prompts only")
      ->check(CLI::Range(0, kMaxTokens))
      ->capture_default_str();
  command->add_flag("--ignore-eos", options.ignore_eos, "Go on after the end token");
  command->add_option("--temperature", options.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, kMaxTemperature))
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the draws at a temperature above 0")
      ->capture_default_str();
  command->add_option("--page-size", options.page_size, "Rows of a page of the K/V cache")
      ->check(CLI::Range(1, kMaxPageSize))
      ->capture_default_str();
  command->add_option("--cache-dtype", options.cache_dtype, "Element type of the K/V cache")
      ->check(CLI::IsMember({"f32", "bf16", "fp16"}))
      ->capture_default_str();
  command->add_option("--threads", options.threads, "Threads; 0 = one per core")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command->add_option("--backend", options.backend, "Where to run")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->add_flag("--json", options.json, "Print one JSON document instead of text");
  return command;
}

}  // namespace tilewise::generate
