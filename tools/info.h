// `tilewise info`: the build, its backends, this machine, and what the library can do on it.
#pragma once

#include <iosfwd>

namespace tilewise::tools {

struct InfoOptions {
  bool json = false;
};

// Exit status: always 0.
int run_info(const InfoOptions& options, std::ostream& out);

}  // namespace tilewise::tools
