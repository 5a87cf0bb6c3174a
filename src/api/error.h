// The boundary's error text: one buffer a thread, cleared on entry of every call.
#pragma once

#include <tilewise/tilewise.h>

#include "core/status.h"

namespace tilewise::api {

void clear_error();

// Stores the text of a failure and returns its code.
tw_status report(const core::Status& status);

const char* last_error();

// Runs one C entry point: clears the text, reports the outcome, lets no exception through.
template <class Body>
tw_status guarded(Body&& body) {
  clear_error();
  try {
    return report(body());
  } catch (...) {
    return report(core::Status::error(core::Code::kInternal,
                                      "an exception reached the C boundary; please report it"));
  }
}

}  // namespace tilewise::api
