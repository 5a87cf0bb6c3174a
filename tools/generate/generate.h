// `tilewise generate`: text from a checkpoint through the library.
#pragma once

#include <iosfwd>

#include "generate/options.h"

namespace tilewise::generate {

// Text or one JSON document goes to `out`, progress and speed to `err`. Exit status: 0; 1 if a call
// of the library failed; 2 for options or files that cannot be used.
int run_generate(const GenerateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace tilewise::generate
