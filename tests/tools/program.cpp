// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "src/base/files.h"
#include "tests/source_dir.h"
#include "tests/tools/built.h"
#include "tests/tools/forked_octet.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds kTooLong{60};

/// In the child, between fork and exec.
void redirect(const std::string& file, int descriptor) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ::dup2(fd, descriptor) < 0) ::_exit(126);
}

int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status); }

int wait_for(pid_t child) {
  const auto end = std::chrono::steady_clock::now() + kTooLong;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      ADD_FAILURE() << "the program hangs";
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return code_of(status);
}

/// Whether octet starts others with the words that it was started with, which Linux keeps from before a fork.
bool starts_others(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--ranks" || word == "--gpus"; });
}

/// In the child. 0: no limit.
void limit(__rlimit_resource resource, long bytes) {
  const rlimit both{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (bytes > 0 && ::setrlimit(resource, &both) != 0) ::_exit(126);
}

}  // namespace

ToolTest::ToolTest() {
  std::string pattern = (fs::temp_directory_path() / "octet_tool_XXXXXX").string();
  folder_ = ::mkdtemp(pattern.data());
  ::setenv("OMP_WAIT_POLICY", "passive", 0);             // tests run beside each other:
  ::setenv("XDG_CACHE_HOME", path("cache").c_str(), 1);  // nobody should keep which kernels were fastest
}

ToolTest::~ToolTest() { fs::remove_all(folder_); }

void ToolTest::write(const std::string& name, const std::string& contents) const {
  std::ofstream(path(name), std::ios::binary) << contents;
}

Answer ToolTest::octet(std::vector<std::string> arguments, const Start& start) const {
  arguments.insert(arguments.begin(), octet_program());
  ForkedOctet* const forked = ForkedOctet::get();
  if (start.during || forked == nullptr || starts_others(arguments)) return command(std::move(arguments), start);
  const auto [out, err] = streams();
  const int status = forked->run({.words = std::move(arguments),
                                  .folder = folder_,
                                  .out = start.stdout_path.empty() ? out : start.stdout_path,
                                  .err = err,
                                  .file_size_limit = start.file_size_limit,
                                  .address_space_limit = start.address_space_limit},
                                 kTooLong);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    ADD_FAILURE() << "the program was killed, as one that hangs is";
  return {.code = code_of(status), .out = start.stdout_path.empty() ? read_file(out) : "", .err = read_file(err)};
}

std::pair<std::string, std::string> ToolTest::streams() const {
  const int number = started_++;
  return {path(fmt::format("stdout.{}.txt", number)), path(fmt::format("stderr.{}.txt", number))};
}

Answer ToolTest::command(std::vector<std::string> words, const Start& start) const {
  const auto [out, err] = streams();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    redirect(start.stdout_path.empty() ? out : start.stdout_path, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    limit(RLIMIT_FSIZE, start.file_size_limit);
    limit(RLIMIT_AS, start.address_space_limit);
    if (::chdir(folder_.c_str()) != 0) ::_exit(126);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  if (start.during) start.during(child);
  Answer answer;
  answer.code = wait_for(child);
  if (start.stdout_path.empty()) answer.out = read_file(out);
  answer.err = read_file(err);
  return answer;
}

std::string ToolTest::random_checkpoint(const std::string& name) const {
  const Answer answer =
      octet({"bench", "--model", "resnet8", "--size", "32", "--seconds", "0.01", "--quiet", "--save", path(name)});
  EXPECT_EQ(answer.code, 0) << answer.err;
  return path(name);
}

std::string python_with(const std::string& modules) {
  const char* set = std::getenv("OCTET_PYTHON");
  const std::string from_setup = source_dir() + "/.deps/venv/bin/python";
  const std::string python = set != nullptr ? set : fs::exists(from_setup) ? from_setup : "python3";
  return std::system((python + " -c 'import " + modules + "' 2>/dev/null").c_str()) == 0 ? python : "";
}

void expect_refusal(const Answer& answer, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(answer.code, code) << answer.err;
  EXPECT_EQ(answer.out, "");
  for (const std::string& part : parts) expect_part(answer.err, part);
}

}  // namespace octet::test
