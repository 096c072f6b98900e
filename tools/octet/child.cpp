#include "tools/octet/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/common/error.h"
#include "src/common/interrupt.h"

namespace octet::cli {
namespace {

struct Pipe {
  int read = -1, write = -1;
};

/// Nobody else that is started inherits it.
Pipe open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw data_error(fmt::format("no pipe: {}", std::strerror(errno)));
  return {ends[0], ends[1]};
}

}  // namespace

Child::Child(std::vector<std::string> words) : name_(words.front()) {
  const Pipe to = open_pipe(), from = open_pipe();
  in_ = to.write;
  out_ = from.read;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.read, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, from.write, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error = ::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(to.read);
  ::close(from.write);
  if (error == 0) return;
  ::close(in_);
  ::close(out_);
  throw data_error(fmt::format("{} cannot be started: {}", name_, std::strerror(error)));
}

Child::~Child() {
  ::close(in_);
  ::close(out_);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Child::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(in_, from, bytes);
    throw_if_interrupted();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw data_error(name_ + " has ended early");
    from += count;
    bytes -= static_cast<size_t>(count);
  }
}

void Child::read(void* data, size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::read(out_, to, bytes);
    throw_if_interrupted();
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw data_error(name_ + " has ended early");
    to += count;
    bytes -= static_cast<size_t>(count);
  }
}

std::string Child::read_line() {
  constexpr size_t kLongest = 4096;
  std::string line;
  for (char c = 0; line.size() < kLongest; line += c) {
    read(&c, 1);
    if (c == '\n') break;
  }
  return line;
}

}  // namespace octet::cli
