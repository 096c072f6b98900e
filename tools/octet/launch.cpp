// SPDX-License-Identifier: Apache-2.0
// octet train --gpus N: starts and watches the processes that train together on this host, as torchrun would.
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/progress.h"
#include "tools/octet/trained.h"
#include "trainers/parallel/environment.h"
#include "trainers/parallel/groups.h"
#include "trainers/parallel/lost_ranks.h"

namespace octet::cli {
namespace {

constexpr std::chrono::seconds kUntilKilled{15}, kUntilGone{5};
constexpr unsigned kSecondsToWrite = 5;

/// Returns the words of this process's command line without --gpus N.
std::vector<std::string> own_words() {
  std::ifstream line("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(line, word, '\0');) {
    if (word == "--ranks" || word == "--gpus") {
      std::getline(line, word, '\0');  // its value: CLI11 has seen one
    } else if (!word.starts_with("--ranks=") && !word.starts_with("--gpus=")) {
      words.push_back(word);
    }
  }
  return words;
}

/// Prints a line on stderr, also with --quiet.
void complain(const std::string& line) { std::fputs(("octet: " + line + "\n").c_str(), stderr); }

/// Starts this program with other words and additional variables.
pid_t start(const std::vector<std::string>& words, const std::map<std::string, std::string>& environment) {
  // Until exec the child has the launcher's handler, which would take a Ctrl-C and be forgotten: it waits, and ends it.
  sigset_t ctrl_c, before;
  ::sigemptyset(&ctrl_c);
  ::sigaddset(&ctrl_c, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ctrl_c, &before);
  const pid_t parent = ::getpid(), child = ::fork();
  if (child == 0) ::signal(SIGINT, SIG_DFL);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) throw promise_error(fmt::format("--gpus: cannot start a process: {}", std::strerror(errno)));
  if (child > 0) return child;
  ::setpgid(0, 0);                     // Ctrl-C comes from the launcher, once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody trains on when the launcher is killed
  if (::getppid() != parent) ::_exit(static_cast<int>(ExitCode::promise));
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(static_cast<int>(ExitCode::promise));
}

/// Whether a Ctrl-C ended the process before it had installed its handler.
bool ended_by_ctrl_c(int status) { return interrupted() && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT; }

/// Returns the exit code of a process that ended; another signal than Ctrl-C counts as a broken promise.
int exit_code(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return static_cast<int>(ended_by_ctrl_c(status) ? ExitCode::interrupted : ExitCode::promise);
}

constexpr const char* kAddress = "127.0.0.1";

/// Writes how a rank ended into the ranks' store. A short-lived process of its own does so, because a store whose rank
/// is stopped does not answer.
void send_last_words(int rank, const std::string& how, int port) {
  if (::fork() != 0) return;
  ::signal(SIGALRM, SIG_DFL);
  ::alarm(kSecondsToWrite);
  if (const StorePointer store = visit_store(kAddress, port)) leave_last_words_of(rank, how, *store);
  ::_exit(0);
}

/// The started processes by rank, as far as they have not ended.
class Children {
 public:
  explicit Children(int port) : port_(port) {}
  void add(pid_t child, int rank) { ranks_[child] = rank; }
  bool running() const { return !ranks_.empty(); }
  void signal(int number) const {
    for (const auto& [child, rank] : ranks_) ::kill(child, number);
  }
  void kill_all() {
    for (const auto& [child, rank] : ranks_) kill(child);
  }
  /// Kills processes that are stopped (SIGSTOP), as they cannot end by themselves.
  void kill_stopped() {
    for (const pid_t child : stopped_) kill(child);
  }
  /// Removes the processes that have ended, and keeps the first failure.
  void look() {
    int status = 0;
    for (pid_t child; !ranks_.empty() && (child = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0;) {
      if (ranks_.count(child) == 0) continue;  // it carried last words
      stopped_.erase(child);
      if (WIFSTOPPED(status)) stopped_.insert(child);
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) continue;
      const int code = exit_code(status);
      if (WIFSIGNALED(status) && !ended_by_ctrl_c(status)) tell(child, WTERMSIG(status));
      if (code != 0 && first_failure_ == 0) first_failure_ = code;
      ranks_.erase(child);
    }
  }
  int first_failure() const { return first_failure_; }
  /// Names the processes that were killed but still exist.
  void give_up() const {
    for (const auto& [child, rank] : ranks_)
      complain(
          fmt::format("rank {} (process {}) was killed but is still there: it waits for a disk or a driver, or a "
                      "debugger holds it",
                      rank, child));
  }

 private:
  void kill(pid_t child) {
    ::kill(child, SIGKILL);
    killed_.insert(child);
  }
  /// Says how a process ended, also to the other ranks for their report: they only see that it is gone.
  void tell(pid_t child, int number) const {
    const int rank = ranks_.at(child);
    if (killed_.count(child) > 0 && number == SIGKILL) {
      complain(fmt::format("rank {} did not end by itself and was killed", rank));
      return;
    }
    const char* const name = ::sigabbrev_np(number);
    const std::string how = fmt::format("killed by signal {} (SIG{})", number, name == nullptr ? "?" : name);
    complain(fmt::format("rank {} was {}", rank, how));
    if (rank != 0) send_last_words(rank, how, port_);  // with rank 0 the store is gone
  }

  const int port_;
  std::map<pid_t, int> ranks_;
  std::set<pid_t> stopped_, killed_;  // those of ranks_ that were stopped, and that kill() killed
  int first_failure_ = 0;
};

}  // namespace

ExitCode launch_ranks(int count) {
  const std::vector<std::string> words = own_words();
  const int port = free_local_port();
  Children children(port);
  for (int rank = 0; rank < count; ++rank) {
    children.add(start(words, {{"RANK", std::to_string(rank)},
                               {"LOCAL_RANK", std::to_string(rank)},
                               {"WORLD_SIZE", std::to_string(count)},
                               {"LOCAL_WORLD_SIZE", std::to_string(count)},
                               {"MASTER_ADDR", kAddress},
                               {"MASTER_PORT", std::to_string(port)}}),
                 rank);
  }
  using Clock = std::chrono::steady_clock;
  bool told = false, stopping = false;
  Clock::time_point killed_at{};
  for (; children.running(); ::usleep(50'000)) {
    children.look();
    if (interrupted() && !told) {
      children.signal(SIGINT);
      told = true;
    }
    if (children.first_failure() != 0 && !stopping) {
      stopping = true;
      killed_at = Clock::now() + kUntilKilled;
    }
    if (stopping) children.kill_stopped();
    if (stopping && Clock::now() > killed_at) children.kill_all();
    if (stopping && children.running() && Clock::now() > killed_at + kUntilGone) {
      children.give_up();
      break;
    }
  }
  return static_cast<ExitCode>(children.first_failure());
}

}  // namespace octet::cli
