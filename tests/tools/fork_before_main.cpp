// SPDX-License-Identifier: Apache-2.0
// Loaded with a program (LD_PRELOAD), it holds the program before main() and forks it for each command that a test asks
// for: the program's libraries, LibTorch's above all, are loaded once for all commands of a test. Knows no octet.
//
// A request, on the socket that OCTET_FORK_SOCKET names: its length (uint32) and strings that end in 0: working folder,
// files for stdout and stderr, limits of file size and of address space (0: none), how many words the command has,
// these words, the environment. The answer: the process's number, a line, and once it ended its status (waitpid's), a
// line.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
Main programs_main = nullptr;

bool read_all(int socket, void* to, size_t bytes) {
  for (auto* at = static_cast<char*>(to); bytes > 0;) {
    const ssize_t got = ::read(socket, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void redirect(const char* file, int descriptor) {
  const int fd = ::open(file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ::dup2(fd, descriptor) < 0) ::_exit(126);
  ::close(fd);
}

void limit(__rlimit_resource resource, const char* bytes) {
  const auto most = static_cast<rlim_t>(std::atol(bytes));
  const rlimit both{most, most};
  if (most > 0 && ::setrlimit(resource, &both) != 0) ::_exit(126);
}

/// In the child: becomes the program that was asked for.
int become(const std::vector<char*>& strings) {
  redirect(strings[1], STDOUT_FILENO);
  redirect(strings[2], STDERR_FILENO);
  limit(RLIMIT_FSIZE, strings[3]);
  limit(RLIMIT_AS, strings[4]);
  if (::chdir(strings[0]) != 0) ::_exit(126);
  const size_t words = static_cast<size_t>(std::atoi(strings[5]));
  std::vector<char*> argv(strings.begin() + 6, strings.begin() + 6 + static_cast<std::ptrdiff_t>(words));
  argv.push_back(nullptr);
  ::clearenv();
  for (size_t i = 6 + words; i < strings.size(); ++i) ::putenv(strings[i]);
  return programs_main(static_cast<int>(words), argv.data(), environ);
}

/// Until the test closes the socket.
int serve(int argc, char** argv, char** environment) {
  const char* number = std::getenv("OCTET_FORK_SOCKET");
  if (number == nullptr) return programs_main(argc, argv, environment);
  const int socket = std::atoi(number);
  for (uint32_t bytes = 0; read_all(socket, &bytes, sizeof bytes);) {
    std::string request(bytes, '\0');
    if (!read_all(socket, request.data(), bytes)) break;
    std::vector<char*> strings;
    for (size_t i = 0; i < bytes; i += std::strlen(&request[i]) + 1) strings.push_back(&request[i]);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(socket);
      return become(strings);
    }
    int status = 126 << 8;
    ::dprintf(socket, "%d\n", child);
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    ::dprintf(socket, "%d\n", status);
  }
  ::_exit(0);
}

}  // namespace

/// Replaces glibc's function, which a program calls first: its own libraries are loaded by then.
extern "C" int __libc_start_main(Main program, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*rtld_fini)(), void* stack_end) {
  programs_main = program;
  const auto glibcs = reinterpret_cast<int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*)>(
      ::dlsym(RTLD_NEXT, "__libc_start_main"));
  return glibcs(serve, argc, argv, init, fini, rtld_fini, stack_end);
}
