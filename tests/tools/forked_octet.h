// SPDX-License-Identifier: Apache-2.0
// octet, whose libraries are loaded once for all commands of a test (fork_before_main.cpp).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace octet::test {

class ForkedOctet {
 public:
  struct Command {
    std::vector<std::string> words;  ///< the program's name first
    std::string folder, out, err;    ///< where it runs, and files for what it says
    long file_size_limit = 0, address_space_limit = 0;
  };

  /// The one of this test program, which the first call starts; nullptr where the build has no library for it.
  static ForkedOctet* get();
  ~ForkedOctet();
  ForkedOctet(const ForkedOctet&) = delete;
  ForkedOctet& operator=(const ForkedOctet&) = delete;

  /// Returns how it ended, as waitpid says it; killed, if it takes longer. One command at a time.
  int run(const Command& command, std::chrono::seconds longest);

 private:
  explicit ForkedOctet(const std::string& library);
  int number(std::chrono::steady_clock::time_point until);

  int socket_ = -1;
  pid_t program_ = -1;
  std::string answers_;  ///< what came and was not read yet
  std::mutex mutex_;
};

}  // namespace octet::test
