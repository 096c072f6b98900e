// SPDX-License-Identifier: Apache-2.0
// train.val_interval and qat.val_interval: which epochs are validated, and what is told of the others.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/base/files.h"
#include "tests/trainers/tiny.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

Recipe recipe_of(int val_interval) {
  Recipe recipe = tiny_recipe();
  recipe.train.epochs = 5;
  recipe.qat.epochs = 3;
  recipe.qat.ema = 0.9;  // what is validated is then another network than what is trained
  recipe.quant.scales = EdgeScales::observed;
  recipe.train.val_interval = recipe.qat.val_interval = val_interval;
  recipe.evaluate.engines = {"cpu"};
  return recipe;
}

/// Returns "float 2, float 4, ..." of the epochs with a validation.
std::string validated(const std::vector<EpochMetrics>& epochs) {
  std::string text;
  for (const EpochMetrics& epoch : epochs) {
    EXPECT_EQ(epoch.validation_loss.has_value(), epoch.validation_top1.has_value());
    if (epoch.validation_loss) text += (text.empty() ? "" : ", ") + epoch.phase + " " + std::to_string(epoch.epoch);
  }
  return text;
}

constexpr const char* kEverySecond = "float 2, float 4, float 5, qat 2, qat 3";

TEST(ValInterval, EverySoManiethEpochAndTheLastAreValidated) {
  const Folder folder("val_interval");
  const RunDirectory some{folder.path() + "/some"}, each{folder.path() + "/each"};
  std::vector<EpochMetrics> told;
  testing::internal::CaptureStderr();
  const Report report =
      train(recipe_of(2), some, {.epoch_done = [&](const EpochMetrics& epoch) { told.push_back(epoch); }}).value();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(validated(report.epochs), kEverySecond);
  EXPECT_EQ(validated(told), kEverySecond);
  EXPECT_EQ(report.epochs.size(), 8U);
  EXPECT_EQ(told.size(), 8U);
  for (const nlohmann::json& epoch : nlohmann::json::parse(read_file(some.report_json())).at("epochs")) {
    const bool has = std::string(kEverySecond)
                         .find(epoch.at("phase").get<std::string>() + " " +
                               std::to_string(epoch.at("epoch").get<int>())) != std::string::npos;
    EXPECT_EQ(epoch.at("validation_loss").is_number(), has) << epoch;
    EXPECT_EQ(epoch.at("validation_top1").is_null(), !has) << epoch;
  }
  for (const char* phase : {"float 1/5", "float 2/5", "float 5/5", "qat 1/3", "qat 3/3"}) {
    const size_t at = said.find(std::string(phase) + ": loss ");
    ASSERT_NE(at, std::string::npos) << phase << said;
    const std::string line = said.substr(at, said.find('\n', at) - at);
    EXPECT_EQ(line.find("validation") != std::string::npos, phase[phase[0] == 'f' ? 6 : 4] != '1') << line;
    EXPECT_NE(line.find(" images/s"), std::string::npos) << line;
  }

  const Report all = train(recipe_of(1), each, {}).value();
  EXPECT_TRUE(read_file(some.quantized()) == read_file(each.quantized()));
  ASSERT_EQ(all.epochs.size(), 8U);
  for (size_t i = 0; i < all.epochs.size(); ++i) {
    EXPECT_EQ(report.epochs[i].train_loss, all.epochs[i].train_loss) << i;
    const std::optional<double> mine = report.epochs[i].validation_loss;
    EXPECT_EQ(mine, mine ? all.epochs[i].validation_loss : std::nullopt) << i;
  }
}

TEST(ValInterval, MoreThanAPhaseHasLeavesTheLast) {
  const Folder folder("val_interval_last");
  const Report report = train(recipe_of(100), {folder.path() + "/run"}, {}).value();
  EXPECT_EQ(validated(report.epochs), "float 5, qat 3");
}

/// The float phase of a run in a folder of its own, in which four steps make an epoch.
class FloatPhase {
 public:
  explicit FloatPhase(const std::string& name) : folder_(name), directory_{folder_.path()} {
    std::filesystem::create_directories(directory_.checkpoints());
  }

  /// Begins or goes on, and is interrupted after its step `last`; 0: never.
  void train(int val_interval, int last, bool resume) {
    octet::Run run = open_run(recipe_of(val_interval), directory_);
    Weights weights = starting_weights(run);
    train_float(run, weights, resume, [&] { return ++steps_ == last; });
  }

  std::vector<EpochMetrics> epochs() const { return read_metrics(directory_.metrics()); }

 private:
  const Folder folder_;
  const RunDirectory directory_;
  int steps_ = 0;
};

TEST(ValInterval, AResumedPhaseKeepsItsTurns) {
  FloatPhase phase("val_interval_resumed");
  // The first stop is between the first epoch's last step and its end.
  message_of(ExitCode::interrupted, [&] { phase.train(2, 4, false); });
  message_of(ExitCode::interrupted, [&] { phase.train(2, 7, true); });
  phase.train(2, 0, true);
  EXPECT_EQ(validated(phase.epochs()), "float 2, float 4, float 5");
  EXPECT_EQ(phase.epochs().size(), 5U);
}

TEST(ValInterval, AResumedPhaseMayHaveOtherTurns) {
  FloatPhase phase("val_interval_changed");
  message_of(ExitCode::interrupted, [&] { phase.train(2, 9, false); });  // in the third epoch
  phase.train(1, 0, true);
  EXPECT_EQ(validated(phase.epochs()), "float 2, float 3, float 4, float 5");
}

TEST(ValInterval, AFinishedRunIsNotRefusedForOtherTurns) {
  const Folder folder("val_interval_finished");
  const RunDirectory directory{folder.path() + "/run"};
  train(recipe_of(2), directory, {});
  const std::string trained = read_file(directory.quantized());
  Recipe other = recipe_of(1);
  train(other, directory, {.resume = true});
  EXPECT_TRUE(read_file(directory.quantized()) == trained);
  other.train.momentum = 0.8;
  const std::string refused = message_of(ExitCode::usage, [&] { train(other, directory, {.resume = true}); });
  EXPECT_NE(refused.find("only `evaluate` and `val_interval` may differ"), std::string::npos) << refused;
}

}  // namespace
}  // namespace octet
