// Thread-local text of the last failure.
#include "api/error.h"

#include <cstring>

namespace tilewise::api {
namespace {

thread_local char g_text[256];

}  // namespace

void clear_error() { g_text[0] = '\0'; }

tw_status report(const core::Status& status) {
  std::strncpy(g_text, status.text(), sizeof g_text - 1);
  return static_cast<tw_status>(status.code());
}

const char* last_error() { return g_text; }

}  // namespace tilewise::api
