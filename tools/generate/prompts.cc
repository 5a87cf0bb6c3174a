// See prompts.h.
#include "generate/prompts.h"

#include <charconv>
#include <fstream>
#include <iterator>

#include "generate/config.h"
#include "generate/error.h"

namespace tilewise::generate {
namespace {

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) throw InputError("--prompt-file: cannot read " + path);
  return bytes;
}

}  // namespace

std::vector<std::int32_t> parse_ids(const std::string& text, std::int32_t vocab) {
  constexpr const char* kSeparators = " \t\r\n,[]";
  std::vector<std::int32_t> ids;
  for (std::size_t i = text.find_first_not_of(kSeparators); i != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, i), text.size());
    std::int32_t id = -1;
    const auto result = std::from_chars(text.data() + i, text.data() + end, id);
    if (result.ec != std::errc() || result.ptr != text.data() + end || id < 0 || id >= vocab) {
      throw InputError("--ids: " + text.substr(i, std::min<std::size_t>(end - i, 40)) +
                       " is no token number below " + std::to_string(vocab));
    }
    ids.push_back(id);
    i = text.find_first_not_of(kSeparators, end);
  }
  return ids;
}

std::vector<std::vector<std::int32_t>> read_prompts(const GenerateOptions& options,
                                                    const Tokenizer& tokenizer) {
  if (options.prompts.empty()) throw InputError("--prompt: give a prompt, or --prompt-file");
  if (options.chat && options.ids) throw InputError("--chat: needs text, --ids gives none");
  const ChatFrame frame = options.chat ? read_chat_frame(options.model_dir) : ChatFrame{};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const PromptSource& source : options.prompts) {
    const std::string text = source.is_file ? read_bytes(source.value) : source.value;
    prompts.push_back(options.ids ? parse_ids(text, tokenizer.vocab_size())
                                  : tokenizer.encode(frame.prefix + text + frame.suffix));
    if (prompts.back().empty()) {
      throw InputError(std::string(source.is_file ? "--prompt-file" : "--prompt") + ": prompt " +
                       std::to_string(prompts.size()) + " has no tokens");
    }
  }
  return prompts;
}

}  // namespace tilewise::generate
