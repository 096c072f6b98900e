// SPDX-License-Identifier: Apache-2.0
// A process to which the system allows few threads, for death tests.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "src/base/error.h"

namespace octet::testing {

/// Runs work() where the system lets this process have a few threads more at most, prints the Error that it throws to
/// stderr, and exits with the number of threads that are left; 100 or more: the limit could not be set, or no Error.
template <typename Work>
[[noreturn]] void run_with_few_threads(const Work& work) {
  // Root may exceed the limit, which counts all threads of a user: that of one without processes, or at most 8 in all.
  if (::geteuid() == 0 && ::setresuid(54321, 54321, 54321) != 0) std::_Exit(100);
  const rlimit few{8, 8};
  if (::setrlimit(RLIMIT_NPROC, &few) != 0) std::_Exit(101);
  try {
    work();
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
    std::_Exit(static_cast<int>(std::distance(begin(tasks), end(tasks))));
  }
  std::_Exit(102);
}

}  // namespace octet::testing
