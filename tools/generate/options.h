// Options of `tilewise generate`, and how the command line fills them.
#pragma once

#include <tilewise/tilewise.h>

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tilewise::generate {

struct PromptSource {
  bool is_file;
  std::string value;  // the text, or the file's name
};

struct GenerateOptions {
  std::string model_dir;
  std::vector<PromptSource> prompts;  // in the order of the command line; one batch
  bool chat = false;
  bool ids = false;
  bool json = false;
  bool ignore_eos = false;
  std::int32_t max_tokens = 128;  // 0 = read the prompts only
  double temperature = 0;
  std::uint64_t seed = 0;
  std::int32_t page_size = 16;
  std::int32_t threads = 0;  // 0 = one per core
  std::string backend = "cpu";
  std::string cache_dtype = "f32";
};

// Adds the subcommand to `app`; parsing fills `options`, which must live as long.
CLI::App* add_generate_command(CLI::App& app, GenerateOptions& options);

}  // namespace tilewise::generate
