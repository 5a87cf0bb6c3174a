// The bar is drawn with carriage returns only and at most ten times a second; plain lines come
// every five seconds and at the end, so that a log stays short.
#include "common/progress.h"

#include <unistd.h>

#include <iostream>

namespace tilewise::tools {
namespace {

constexpr std::int64_t kBarWidth = 24;
constexpr std::size_t kTextWidth = 40;
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLine{5};

}  // namespace

Progress::Progress(std::ostream& out, std::string label, std::int64_t total)
    : out_(out),
      label_(std::move(label)),
      total_(total),
      terminal_(&out == &std::cerr && isatty(STDERR_FILENO) == 1),
      last_(Clock::now()) {
  if (terminal_ && total_ > 0) draw(0, "");
}

Progress::~Progress() { clear(); }

void Progress::update(std::int64_t done, const std::string& what) {
  if (total_ <= 0) return;
  const auto now = Clock::now();
  const bool last = done >= total_;
  if (!last && now - last_ < (terminal_ ? std::chrono::milliseconds(kRedraw)
                                        : std::chrono::milliseconds(kLine))) {
    return;
  }
  last_ = now;
  if (terminal_) {
    draw(done, what);
  } else {
    out_ << label_ << ": " << done << '/' << total_ << (what.empty() ? "" : "  ") << what
         << std::endl;
  }
}

void Progress::draw(std::int64_t done, const std::string& what) {
  const std::int64_t filled = kBarWidth * done / total_;
  std::string text = what.substr(0, kTextWidth);
  text.resize(kTextWidth, ' ');  // covers what the last drawing left
  out_ << '\r' << label_ << " [" << std::string(static_cast<std::size_t>(filled), '#')
       << std::string(static_cast<std::size_t>(kBarWidth - filled), '.') << "] " << done << '/'
       << total_ << "  " << text << std::flush;
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  const std::size_t width = label_.size() + static_cast<std::size_t>(kBarWidth) + kTextWidth + 32;
  out_ << '\r' << std::string(width, ' ') << '\r' << std::flush;
  drawn_ = false;
}

}  // namespace tilewise::tools
