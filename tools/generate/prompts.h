// From the prompts of the command line to token numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "generate/options.h"
#include "generate/tokenizer.h"

namespace tilewise::generate {

// Token numbers separated by white space or commas, in brackets or not. Throws InputError for
// anything else.
std::vector<std::int32_t> parse_ids(const std::string& text, std::int32_t vocab);

// Tokens of every prompt. Throws InputError that names the option at fault.
std::vector<std::vector<std::int32_t>> read_prompts(const GenerateOptions& options,
                                                    const Tokenizer& tokenizer);

}  // namespace tilewise::generate
