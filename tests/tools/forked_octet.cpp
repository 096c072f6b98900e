// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/forked_octet.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>

#include "tests/tools/built.h"

namespace octet::test {
namespace {

constexpr int kNotInTime = std::numeric_limits<int>::min();

/// Strings that end in 0, behind their length.
std::string request(const ForkedOctet::Command& command) {
  std::string strings;
  const auto add = [&](const std::string& text) { strings.append(text.c_str(), text.size() + 1); };
  for (const std::string& text : {command.folder, command.out, command.err, std::to_string(command.file_size_limit),
                                  std::to_string(command.address_space_limit), std::to_string(command.words.size())})
    add(text);
  for (const std::string& word : command.words) add(word);
  for (char** variable = environ; *variable != nullptr; ++variable) add(*variable);
  const auto length = static_cast<uint32_t>(strings.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + strings;
}

}  // namespace

ForkedOctet* ForkedOctet::get() {
  static const std::unique_ptr<ForkedOctet> only(fork_library().empty() ? nullptr : new ForkedOctet(fork_library()));
  return only.get();
}

ForkedOctet::ForkedOctet(const std::string& library) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socket");
  socket_ = ends[0];
  program_ = ::fork();
  if (program_ == 0) {
    ::fcntl(ends[1], F_SETFD, 0);
    ::setenv("LD_PRELOAD", library.c_str(), 1);
    ::setenv("OCTET_FORK_SOCKET", std::to_string(ends[1]).c_str(), 1);
    const std::string path = octet_program();
    ::execl(path.c_str(), path.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
}

ForkedOctet::~ForkedOctet() {
  ::close(socket_);
  ::waitpid(program_, nullptr, 0);
}

/// The next line that comes, as a number; kNotInTime if none does.
int ForkedOctet::number(std::chrono::steady_clock::time_point until) {
  size_t end = 0;
  while ((end = answers_.find('\n')) == std::string::npos) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0) return kNotInTime;
    pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    char text[64];
    const ssize_t got = ::read(socket_, text, sizeof text);
    if (got <= 0) throw std::runtime_error("octet ended before main()");
    answers_.append(text, static_cast<size_t>(got));
  }
  const int value = std::stoi(answers_.substr(0, end));
  answers_.erase(0, end + 1);
  return value;
}

int ForkedOctet::run(const Command& command, std::chrono::seconds longest) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + longest;
  const std::string text = request(command);
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t more = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (more < 0) throw std::runtime_error("octet ended before main()");
    sent += static_cast<size_t>(more);
  }
  const int process = number(until);
  if (process == kNotInTime) throw std::runtime_error("octet does not start");
  int status = number(until);
  if (status == kNotInTime) {
    ::kill(process, SIGKILL);
    status = number(std::chrono::steady_clock::time_point::max());
  }
  return status;
}

}  // namespace octet::test
