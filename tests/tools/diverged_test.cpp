// SPDX-License-Identifier: Apache-2.0
// Trainings that diverge, and runs whose process is killed: what the user reads, then and later.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <regex>
#include <sstream>
#include <thread>

#include "src/base/files.h"
#include "src/recipe/run.h"
#include "tests/tools/program.h"
#include "tests/tools/tiny_recipe.h"

namespace octet::test {
namespace {

/// BatchNorm folded away, as in every ONNX file that PyTorch exports, and a rate that is far too large for it.
constexpr const char* kFolded = R"(
data: {format: synthetic, image_size: 16, synthetic_size: 64, synthetic_classes: 5, workers: 0}
model: {name: resnet56, folded: true}
train: {epochs: 1, batch_size: 16, learning_rate: 0.000001}
calibrate: {images: 32, batch_size: 16}
qat: {epochs: 3, batch_size: 16, learning_rate: 0.1}
evaluate: {engines: [cpu], latency_images: 0}
)";

class Diverged : public ToolTest {
 protected:
  void SetUp() override {
    write("folded.yaml", kFolded);
    write("tiny.yaml", kTinyRecipe);
  }
  Answer train(const std::string& recipe, std::vector<std::string> more = {}, const Start& start = {}) const {
    std::vector<std::string> words = {"train", path(recipe), "--out", path("run"), "--device", "cpu", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return octet(words, start);
  }
  std::string page() const { return read_file(RunDirectory{path("run")}.report_html()); }

  /// The words of the command that the message ends with, for the folder `out`.
  std::vector<std::string> advised(const std::string& message, const std::string& out) const {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(message, found, std::regex(": octet (train .*)\\. (?:qat|train)\\.warmup")))
        << message;
    std::istringstream text(found[1]);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word == "ANOTHER" ? path(out) : word);
    return words;
  }
};

TEST_F(Diverged, QatSaysItWithItsCureAndSoDoesResume) {
  const Answer first = train("folded.yaml");
  expect_refusal(first, 1,
                 {"phase qat, epoch ", "training diverged", "Lower qat.learning_rate, now 0.1: octet train "});
  expect_part(page(), "<p class=\"state\">Stopped: phase qat");
  const Answer again = octet({"train", path("run"), "--resume", "--device", "cpu", "--quiet"});
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.err, first.err);
}

/// What needs a finished run says why this one has none and what to do, not to go on with it.
TEST_F(Diverged, CommandsThatNeedTheRunSayWhyItEnded) {
  const std::string first = train("folded.yaml").err;
  const std::string reason = first.substr(first.find("phase qat, epoch "));
  for (const char* command : {"evaluate", "compare", "inspect", "bench"}) {
    const Answer answer = octet({command, path("run")});
    expect_refusal(answer, 3, {"int8.safetensors: this run has no int8 checkpoint yet. Stopped: phase qat, epoch "});
    expect_part(answer.err, reason.substr(0, reason.find('\n')));
    EXPECT_EQ(answer.err.find("--resume"), std::string::npos) << answer.err;
  }
  const Answer exported = octet({"export", path("run"), "--device", "cpu"});
  expect_refusal(exported, 3, {"qat.safetensors: this run has no quantized network yet. Stopped: phase qat, epoch "});
  expect_part(exported.err, reason.substr(0, reason.find('\n')));
  EXPECT_EQ(exported.err.find("--resume"), std::string::npos) << exported.err;
}

TEST_F(Diverged, TheAdvisedCommandTrains) {
  std::vector<std::string> words = advised(train("folded.yaml").err, "another");
  const auto rate = std::find(words.begin(), words.end(), "qat.learning_rate=0.01");
  ASSERT_NE(rate, words.end());
  *rate = "qat.learning_rate=0.0000001";  // this network, which has learned nothing yet, wants less than a tenth
  words.insert(words.end(), {"--device", "cpu", "--quiet"});
  const Answer cured = octet(words);
  EXPECT_EQ(cured.code, 0) << cured.err;
  expect_part(cured.out, "qat_graph");
}

TEST_F(Diverged, AValidationThatOverflowsIsDivergenceAndItsMetricsAreRead) {
  const std::vector<std::string> set = {"--set", "qat.epochs=0",       "--set", "train.learning_rate=0.001",
                                        "--set", "data.image_size=32", "--set", "data.synthetic_size=48"};
  const Answer first = train("folded.yaml", set);
  expect_refusal(first, 1, {"phase float, epoch 1", "training diverged", "Lower train.learning_rate, now 0.001"});
  const Answer again = octet({"train", path("run"), "--resume", "--device", "cpu", "--quiet"});
  expect_refusal(again, 1, {"phase float, epoch 1", "training diverged"});
}

/// Whoever looks at the run next rewrites the page; who looks while it trains does not.
TEST_F(Diverged, ThePageOfAKilledRunSaysSoWhenNextLookedAt) {
  const Answer killed = train("tiny.yaml", {"--set", "train.epochs=100000"}, {.during = [&](pid_t process) {
                                const auto runs = [&] {
                                  return std::filesystem::exists(RunDirectory{path("run")}.metrics()) &&
                                         page().find("Running: float") != std::string::npos;
                                };
                                for (int wait = 0; wait < 600 && !runs(); ++wait)
                                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                octet({"evaluate", path("run")});
                                expect_part(page(), "Running: float");
                                ::kill(process, SIGKILL);
                              }});
  EXPECT_EQ(killed.code, 1000 + SIGKILL);
  expect_part(page(), "Running: float");
  const Answer looked = octet({"evaluate", path("run")});
  expect_part(looked.err, "this run's process ended without a word");
  const std::string ended = page();
  expect_part(ended, "<p class=\"state\">Stopped: its process ended without a word");
  expect_part(ended, "--resume");
  for (const char* gone : {"Running: ", "http-equiv=\"refresh\"", "<script>"})
    EXPECT_EQ(ended.find(gone), std::string::npos) << gone;
}

}  // namespace
}  // namespace octet::test
