// SPDX-License-Identifier: Apache-2.0
// Errors that reach the user. A message names the file, the place in it, the key and what to do; the exit code says
// whose fault it is.
#pragma once

#include <stdexcept>
#include <string>

namespace octet {

/// Exit codes of the process, documented in README.md.
enum class ExitCode : int {
  ok = 0,
  promise = 1,        ///< a promise is broken: codes differ, a node cannot run, training diverged
  usage = 2,          ///< wrong command line or recipe
  data = 3,           ///< missing, corrupt or unwritable data or file
  interrupted = 130,  ///< Ctrl-C; what was done so far is saved
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

inline Error promise_error(const std::string& message) { return {ExitCode::promise, message}; }
inline Error usage_error(const std::string& message) { return {ExitCode::usage, message}; }
inline Error data_error(const std::string& message) { return {ExitCode::data, message}; }

}  // namespace octet
