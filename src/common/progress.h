// Progress of long work on stderr: a bar with rate, loss and ETA on a terminal, a plain line now and then elsewhere,
// nothing with --quiet.
#pragma once

#include <chrono>
#include <string>

namespace octet {

enum class Verbosity { quiet, normal };
void set_verbosity(Verbosity verbosity);

/// One line for the user on stderr (not with --quiet).
void say(const std::string& line);

class Progress {
 public:
  /// title: "float 3/10"; total, begun and update() count `unit`s ("images").
  /// begun: done before, by a run that is resumed; the rate leaves it out.
  Progress(std::string title, long total, std::string unit = "images", long begun = 0);
  ~Progress();                                             ///< finishes the line
  void update(long done, const std::string& detail = "");  ///< detail: "loss 0.412"; cheap to call often

 private:
  std::string title_, unit_, detail_;
  long total_, begun_, done_;
  std::chrono::steady_clock::time_point start_, shown_;
  bool terminal_;
};

}  // namespace octet
