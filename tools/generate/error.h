// The one exception of the generate command: something in the caller's files or options is wrong.
// Its text is printed as it stands and the command ends with status 2.
#pragma once

#include <stdexcept>

namespace tilewise::generate {

class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilewise::generate
