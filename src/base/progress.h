// SPDX-License-Identifier: Apache-2.0
// Long work on the command line: its progress on stderr, and Ctrl-C.
#pragma once

#include <chrono>
#include <string>

namespace octet {

enum class Verbosity { quiet, normal };
void set_verbosity(Verbosity verbosity);

/// Writes one line for the user to stderr; nothing when quiet.
void say(const std::string& line);

/// Shows progress on stderr: on a terminal a bar with rate, detail and remaining time, elsewhere a line every ten
/// seconds, nothing when quiet.
class Progress {
 public:
  /// `title` stands before the bar ("float 3/10"). `total` and `begun` are counted in `unit`s; `begun` were done by an
  /// earlier run that this one resumes, and the rate leaves them out.
  Progress(std::string title, long total, std::string unit = "images", long begun = 0);
  ~Progress();  ///< writes the final line
  /// Sets how many units are done; `detail` is shown after the rate ("loss 0.412"). Cheap enough to call in every step.
  void update(long done, const std::string& detail = "");

 private:
  std::string title_, unit_, detail_;
  long total_, begun_, done_;
  std::chrono::steady_clock::time_point start_, shown_;
  bool terminal_;
};

// An interruption is a flag that loops check between steps.

/// From now on SIGINT and SIGTERM set the flag; a second signal ends the process at once.
void install_interrupt_handler();
bool interrupted();           ///< whether the flag is set
void interrupt();             ///< sets the flag, from any thread or signal handler
void forget_interrupt();      ///< clears the flag before other work in this process begins
void throw_if_interrupted();  ///< throws Error(ExitCode::interrupted) if the flag is set

}  // namespace octet
