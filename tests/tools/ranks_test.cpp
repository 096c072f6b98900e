// octet train --ranks 2: two processes train one network on this machine's CPU.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "src/common/files.h"
#include "src/run/run_directory.h"
#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {
namespace {

namespace fs = std::filesystem;

class RanksTool : public ToolTest {
 protected:
  void SetUp() override { write("tiny.yaml", kTinyRecipe); }
  Answer train(std::vector<std::string> more, const Start& start = {}) const {
    std::vector<std::string> words = {"train", path("tiny.yaml"), "--device", "cpu",
                                      "--set", "qat.epochs=2",    "--set",    "qat.float_control=true"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words, start);
  }
};

TEST_F(RanksTool, OneRunOneDocumentNoDifferingCode) {
  const Answer answer = train({"--out", path("run"), "--ranks", "2", "--json", "--quiet"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.err, "");
  const RunDirectory run{path("run")};
  const auto report = nlohmann::json::parse(answer.out);
  EXPECT_EQ(report, nlohmann::json::parse(read_file(run.report_json())));
  EXPECT_EQ(report.at("notes").at(0), "2 processes trained together");
  EXPECT_TRUE(fs::is_regular_file(run.float_control()));
  const std::string metrics = read_file(run.metrics());
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 5);  // an epoch of float, two of QAT and the control
  EXPECT_EQ(octet({"compare", path("run"), "--quiet"}).code, 0);
}

TEST_F(RanksTool, ANetworkWithoutBatchNorm) {
  const Answer answer = train({"--out", path("run"), "--ranks", "2", "--set", "model.folded=true", "--set",
                               "qat.epochs=0", "--set", "qat.float_control=false", "--quiet"});
  EXPECT_EQ(answer.code, 0) << answer.err;
}

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

/// It holds the connections open and says nothing; rank 0 also stops the store through which the others meet.
TEST_F(RanksTool, AStoppedProcessEndsTheRun) {
  for (const int stopped : {1, 0}) {
    const RunDirectory run{path(fmt::format("run{}", stopped))};
    std::chrono::steady_clock::time_point begin;
    const Answer answer =
        train({"--out", run.root, "--ranks", "2", "--set", "train.epochs=4000"}, {.during = [&](pid_t launcher) {
                send_to_rank(stopped, SIGSTOP, launcher, run);
                begin = std::chrono::steady_clock::now();
              }});
    EXPECT_EQ(answer.code, 1) << answer.err;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
    expect_part(answer.err, fmt::format("rank {} of 2 stops: rank {} gives no sign of life", 1 - stopped, stopped));
  }
}

TEST_F(RanksTool, AKilledProcessEndsTheRunAndResumeGoesOn) {
  const std::vector<std::string> long_run{"--out", path("run"), "--ranks", "2", "--set", "train.epochs=400"};
  const auto begin = std::chrono::steady_clock::now();
  const Answer killed = train(
      long_run, {.during = [&](pid_t launcher) { send_to_rank(1, SIGKILL, launcher, RunDirectory{path("run")}); }});
  EXPECT_EQ(killed.code, 1) << killed.err;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(40));
  expect_part(killed.err, "rank 1 was ended by signal 9");
  expect_part(killed.err, "rank 0 of 2 stops: rank 1 ended without a word");
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
  expect_part(stopped.err, "what was done is saved: octet train");
}

TEST_F(RanksTool, WhatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const Answer odd = train({"--out", path("run"), "--ranks", "2", "--set", "qat.batch_size=33"});
  EXPECT_EQ(odd.code, 2) << odd.err;
  expect_part(odd.err, "qat.batch_size 33: 2 processes share each batch, so it must be a multiple of 2");
  const Answer observed = train({"--out", path("run"), "--ranks", "2", "--set", "quant.scales=observed"});
  EXPECT_EQ(observed.code, 2) << observed.err;
  expect_part(observed.err, "quant.scales: observed lets each process follow the ranges of its own pictures");
  EXPECT_FALSE(fs::exists(path("run")));
}

}  // namespace
}  // namespace octet::test
