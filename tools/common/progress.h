// Progress of long work: a bar that is redrawn in place on a terminal, plain lines now and then
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace tilewise::tools {

class Progress {
 public:
  // `out` is a terminal if it is std::cerr and standard error is one. Nothing is shown for a total
  // of 0.
  Progress(std::ostream& out, std::string label, std::int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total are finished; `what` names the work that comes next or has just been done.
  void update(std::int64_t done, const std::string& what);

  // Takes the bar away, so that other text can be printed. The destructor does the same.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(std::int64_t done, const std::string& what);

  std::ostream& out_;
  std::string label_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point last_;
};

}  // namespace tilewise::tools
