// Stands in for `tilewise generate` in a command that must start on a machine without ICU and
// oneDNN: there is no such subcommand.
#include "generate/generate.h"

namespace tilewise::generate {

CLI::App* add_generate_command(CLI::App&, GenerateOptions&) { return nullptr; }

int run_generate(const GenerateOptions&, std::ostream&, std::ostream&) { return 2; }

}  // namespace tilewise::generate
