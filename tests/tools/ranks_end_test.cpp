// SPDX-License-Identifier: Apache-2.0
// How processes that train together end early: killed, stopped, never met.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "src/base/files.h"
#include "src/recipe/run.h"
#include "tests/tools/built.h"
#include "tests/tools/ranks_tool.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;
using RanksEnd = RanksTool;

/// Processes that `parent` started.
std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", parent, parent));
  std::vector<pid_t> children;
  for (pid_t child; file >> child;) children.push_back(child);
  return children;
}

/// Once the first state is saved.
void send_to_rank(int rank, int number, pid_t launcher, const RunDirectory& run) {
  while (!fs::exists(run.float_state())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::vector<pid_t> children = children_of(launcher);
  ASSERT_EQ(children.size(), 2u);
  ::kill(children[static_cast<size_t>(rank)], number);
}

/// As it stands at the end of what is said.
std::string to_go_on(const RunDirectory& run) {
  return "; to go on: octet train " + run.root + " --resume --gpus 2 --device cpu\n";
}

/// It holds the connections open and says nothing; rank 0 also stops the store through which the others meet.
TEST_F(RanksEnd, AStoppedProcessEndsTheRun) {
  const auto ends = [&](int stopped) {
    const RunDirectory run{path(fmt::format("run{}", stopped))};
    std::chrono::steady_clock::time_point begin;
    const Answer answer =
        train({"--out", run.root, "--ranks", "2", "--set", "train.epochs=4000"}, {.during = [&](pid_t launcher) {
                send_to_rank(stopped, SIGSTOP, launcher, run);
                begin = std::chrono::steady_clock::now();
              }});
    EXPECT_EQ(answer.code, 1) << answer.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    expect_part(answer.err, fmt::format("rank {} of 2 stops: rank {} gives no sign of life", 1 - stopped, stopped));
    expect_part(answer.err, to_go_on(run));
    if (stopped == 1) expect_part(read_file(run.report_html()), "gives no sign of life");
  };
  const auto other = std::async(std::launch::async, ends, 1);  // most of the time both wait
  ends(0);
}

/// Nor can the store of a stopped rank 0 take the launcher's word that another was killed.
TEST_F(RanksEnd, AKilledProcessBesideAStoppedOneEndsTheRun) {
  const RunDirectory run{path("run")};
  std::chrono::steady_clock::time_point begin;
  const Answer answer =
      train({"--out", run.root, "--ranks", "2", "--set", "train.epochs=4000"}, {.during = [&](pid_t launcher) {
              send_to_rank(0, SIGSTOP, launcher, run);
              send_to_rank(1, SIGKILL, launcher, run);
              begin = std::chrono::steady_clock::now();
            }});
  EXPECT_EQ(answer.code, 1) << answer.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  expect_part(answer.err, "rank 1 was killed by signal 9 (SIGKILL)");
}

/// As one that waits for a driver or a disk: here this test's thread is its debugger, and does not fetch its end.
TEST_F(RanksEnd, AKilledProcessThatDoesNotGoKeepsNobody) {
  const RunDirectory run{path("run")};
  pid_t held = 0;
  bool may_hold = false;
  const Answer answer =
      train({"--out", run.root, "--ranks", "2", "--set", "train.epochs=4000"}, {.during = [&](pid_t launcher) {
              while (!fs::exists(run.float_state())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
              held = children_of(launcher).at(1);
              may_hold = ::ptrace(PTRACE_SEIZE, held, nullptr, nullptr) == 0;
              send_to_rank(0, SIGKILL, launcher, run);
            }});
  if (!may_hold) GTEST_SKIP() << "no debugging here: " << std::strerror(errno);
  EXPECT_EQ(answer.code, 1) << answer.err;
  expect_part(answer.err, fmt::format("rank 1 (process {}) was killed but is still there", held));
  EXPECT_EQ(::waitpid(held, nullptr, __WALL), held);
}

TEST_F(RanksEnd, AKilledProcessEndsTheRunAndResumeGoesOn) {
  const std::vector<std::string> long_run{"--out", path("run"), "--ranks", "2", "--set", "train.epochs=400"};
  const auto begin = std::chrono::steady_clock::now();
  const Answer killed = train(
      long_run, {.during = [&](pid_t launcher) { send_to_rank(1, SIGKILL, launcher, RunDirectory{path("run")}); }});
  EXPECT_EQ(killed.code, 1) << killed.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  expect_part(killed.err, "rank 1 was killed by signal 9 (SIGKILL)");
  expect_part(killed.err, "rank 0 of 2 stops: rank 1 ended: killed by signal 9 (SIGKILL) (");
  EXPECT_EQ(killed.err.find("/gloo/"), std::string::npos) << killed.err;
  expect_part(killed.err, to_go_on(RunDirectory{path("run")}));
  expect_part(read_file(RunDirectory{path("run")}.report_html()), "killed by signal 9 (SIGKILL)");
  expect_part(read_file(RunDirectory{path("run")}.report_html()), "; to go on: octet train " + path("run"));
  EXPECT_FALSE(fs::exists(RunDirectory{path("run")}.report_json()));
  const std::string state = RunDirectory{path("run")}.float_state();
  const auto saved = fs::last_write_time(state);
  const Answer stopped =
      octet({"train", path("run"), "--resume", "--ranks", "2", "--device", "cpu"}, {.during = [&](pid_t launcher) {
              while (fs::last_write_time(state) == saved) std::this_thread::sleep_for(std::chrono::milliseconds(20));
              ::kill(launcher, SIGINT);
            }});
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  expect_part(stopped.err, "resumed from");
  expect_part(stopped.err,
              "what was done before is saved: octet train " + path("run") + " --resume --gpus 2 --device cpu");
}

/// A socket at 127.0.0.1 that listens at a port of the system's choice.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { ::close(socket_); }
  int port() const { return port_; }

 private:
  const int socket_;
  int port_ = 0;
};

/// As torchrun starts it.
std::string as_rank(int rank, int port, const std::string& arguments) {
  return fmt::format("WORLD_SIZE=2 RANK={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} {} train {}", rank, port,
                     octet_program(), arguments);
}

/// It waits up to ten minutes for the others to come; who does not want to wait stops it at once.
TEST_F(RanksEnd, WhoWaitsForTheOthersStopsWhenAsked) {
  const std::string recipe = path("tiny.yaml") + " --device cpu --out " + path("run"),
                    waits = "waits for rank 1, up to ten minutes";
  std::array<int, 2> ports{};
  {
    const Listener first, second;  // at once, so that the ports differ
    ports = {first.port(), second.port()};
  }
  write("said", "");  // by rank 0; the others do not speak
  const auto stops = [&](size_t rank) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string start =
        as_rank(static_cast<int>(rank), ports[rank], recipe) + (rank == 0 ? " 2>" + path("said") : "");
    const Answer stopped = command({"bash", "-c", "exec env " + start}, {.during = [&](pid_t waiting) {
                                     while (read_file(path("said")).find(waits) == std::string::npos &&
                                            std::chrono::steady_clock::now() - begin < std::chrono::seconds(14))
                                       std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                     ::kill(waiting, SIGINT);
                                   }});
    EXPECT_EQ(stopped.code, 130) << stopped.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  };
  {
    const auto other = std::async(std::launch::async, stops, 1);
    stops(0);
  }
  expect_part(read_file(path("said")), waits);
  EXPECT_FALSE(fs::exists(path("run")));
}

/// Before they load LibTorch they cannot hear it, and it ends them.
TEST_F(RanksEnd, StoppedWhileTheyStartTheyWereInterrupted) {
  const Answer stopped = train({"--out", path("run"), "--gpus", "2"}, {.during = [&](pid_t launcher) {
                                 while (children_of(launcher).size() < 2)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                 ::kill(launcher, SIGINT);
                               }});
  EXPECT_EQ(stopped.code, 130) << stopped.err;
  EXPECT_EQ(stopped.err.find("killed"), std::string::npos) << stopped.err;
}

/// Where no launcher of ours sees the signal.
TEST_F(RanksEnd, StartedByOthersOneThatIsKilledEndedWithoutAWord) {
  const RunDirectory run{path("run")};
  const std::string recipe = path("tiny.yaml") + " --device cpu --set train.epochs=400 --out " + run.root;
  const int port = Listener().port();
  const Answer killed =
      command({"bash", "-c",
               fmt::format("{} & first=$!; {} & wait $first", as_rank(0, port, recipe), as_rank(1, port, recipe))},
              {.during = [&](pid_t shell) { send_to_rank(1, SIGKILL, shell, run); }});
  EXPECT_EQ(killed.code, 1) << killed.err;
  expect_part(killed.err, "rank 0 of 2 stops: rank 1 ended without a word, or hangs");
  expect_part(read_file(run.report_html()), "rank 1 ended without a word, or hangs");
}

TEST_F(RanksEnd, StartedByOthersWhatDiffersIsNamedAndAPortInUse) {
  const std::string recipe = path("tiny.yaml") + " --device cpu --out " + path("run");
  const int port = Listener().port();
  const Answer differing = command({"bash", "-c",
                                    fmt::format("{} --set seed=2 & {}; code=$?; wait; exit $code",
                                                as_rank(1, port, recipe), as_rank(0, port, recipe))});
  EXPECT_EQ(differing.code, 2) << differing.err;
  expect_part(differing.err, "rank 1 was started otherwise than rank 0: seed: 2 here, seed: 1 on rank 0");
  const Listener taken;
  const Answer in_use = command({"bash", "-c", as_rank(0, taken.port(), recipe)});
  EXPECT_EQ(in_use.code, 2) << in_use.err;
  expect_part(in_use.err, fmt::format("rank 0 cannot listen at 127.0.0.1:{}: Address already in use", taken.port()));
  const Answer no_answer = command({"bash", "-c", as_rank(1, taken.port(), recipe)});
  EXPECT_EQ(no_answer.code, 2) << no_answer.err;
  expect_part(no_answer.err, fmt::format("who listens at 127.0.0.1:{} does not answer as rank 0 does", taken.port()));
  EXPECT_FALSE(fs::exists(path("run")));
}

}  // namespace
}  // namespace octet::test
