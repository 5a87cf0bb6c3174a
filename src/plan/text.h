// Text of tw_attention_explain, written line by line into the caller's buffer.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace tilewise::plan {

// snprintf into what is left, counting what there is no room for.
class Text {
 public:
  Text(char* text, std::size_t capacity) : text_(text), capacity_(capacity) {
    if (capacity_ > 0) text_[0] = '\0';
  }

  [[gnu::format(printf, 2, 3)]] void line(const char* format, ...) {
    const bool room = length_ < capacity_;
    va_list args;
    va_start(args, format);
    const int written = std::vsnprintf(room ? text_ + length_ : nullptr,
                                       room ? capacity_ - length_ : 0, format, args);
    va_end(args);
    if (written > 0) length_ += static_cast<std::size_t>(written);
  }

  std::size_t length() const { return length_; }

 private:
  char* text_;
  std::size_t capacity_;
  std::size_t length_ = 0;
};

}  // namespace tilewise::plan
