// SPDX-License-Identifier: Apache-2.0
// Runs the built program as a user does, and keeps what it answers.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace octet::test {

struct Answer {
  int code = -1;  ///< exit code; 1000 + number when a signal ended it
  std::string out, err;
};

/// How a program is started; the defaults are a user's.
struct Start {
  std::string stdout_path;            ///< instead of being captured: "/dev/full"
  long file_size_limit = 0;           ///< bytes (RLIMIT_FSIZE), in place of a full disk; 0: none
  long address_space_limit = 0;       ///< bytes (RLIMIT_AS); 0: none
  std::function<void(pid_t)> during;  ///< called while it runs
};

/// A folder of its own that goes with the test; programs run in it.
class ToolTest : public ::testing::Test {
 protected:
  ToolTest();
  ~ToolTest() override;

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& contents) const;

  /// build/octet with these arguments. Fails the test when it takes longer than a minute. May be called concurrently.
  Answer octet(std::vector<std::string> arguments, const Start& start = {}) const;
  Answer command(std::vector<std::string> words, const Start& start = {}) const;

  /// A random resnet8 for 3x32x32 images, written by `octet bench --save`.
  std::string random_checkpoint(const std::string& name = "random.safetensors") const;

 private:
  /// Files for what the next program says, on stdout and on stderr.
  std::pair<std::string, std::string> streams() const;

  std::filesystem::path folder_;
  mutable std::atomic<int> started_ = 0;  // programs
};

/// A Python with these modules ("numpy, safetensors"): OCTET_PYTHON, tools/setup.sh's, python3; or "".
std::string python_with(const std::string& modules);

/// EXPECT: the exit code, and every part in stderr (stdout being empty).
void expect_refusal(const Answer& answer, int code, const std::vector<std::string>& parts);

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

}  // namespace octet::test
