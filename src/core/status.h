// Result of a fallible step: a code and a short text in place, without allocation. Codes equal
// tw_status.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace tilewise::core {

enum class Code : std::int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kUnsupported = 2,
  kWorkspaceTooSmall = 3,
  kBackendError = 4,
  kInternal = 5
};

class Status {
 public:
  Status() = default;

  // printf-style text, cut at the end of the buffer.
  [[gnu::format(printf, 2, 3)]] static Status error(Code code, const char* format, ...) {
    Status status;
    status.code_ = code;
    va_list args;
    va_start(args, format);
    std::vsnprintf(status.text_, sizeof status.text_, format, args);
    va_end(args);
    return status;
  }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const char* text() const { return text_; }

 private:
  Code code_ = Code::kOk;
  char text_[240] = {};
};

// Every message says which argument, what came and what was wanted.
inline Status invalid_argument(const char* name, long long value, const char* wanted) {
  return Status::error(Code::kInvalidArgument, "%s is %lld, wanted %s", name, value, wanted);
}

inline Status invalid_argument(const char* name, double value, const char* wanted) {
  return Status::error(Code::kInvalidArgument, "%s is %g, wanted %s", name, value, wanted);
}

inline Status invalid_argument(const char* name, const void* value, const char* wanted) {
  return Status::error(Code::kInvalidArgument, "%s is %s, wanted %s", name,
                       value == nullptr ? "null" : "set", wanted);
}

inline Status unsupported(const char* name, long long value, const char* wanted) {
  return Status::error(Code::kUnsupported, "%s is %lld, this build does %s", name, value, wanted);
}

#define TW_TRY(expr)                                                                       \
  do {                                                                                     \
    if (::tilewise::core::Status tw_status_ = (expr); !tw_status_.ok()) return tw_status_; \
  } while (false)

}  // namespace tilewise::core
