// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/own_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "src/base/files.h"
#include "tests/trainers/calibrated_run.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::Folder, testing_trainers::message_of, testing_trainers::tiny_recipe;

TEST(OwnRate, BeginsHighAndFallsByThirds) {
  Recipe recipe;
  EXPECT_EQ(recipe.train.learning_rate, 0) << "the default is octet's own rate";
  EXPECT_EQ(first_float_rate(recipe), 0.1);
  std::vector<double> rates{first_float_rate(recipe)};
  while (const std::optional<double> lower = lower_rate(recipe, rates.back())) rates.push_back(*lower);
  ASSERT_EQ(rates.size(), 5U);
  for (size_t i = 0; i < rates.size(); ++i)
    EXPECT_DOUBLE_EQ(rates[i], std::vector<double>({0.1, 0.03, 0.01, 0.003, 0.001})[i]);
  recipe.data.labels = Labels::boxes;
  EXPECT_EQ(first_float_rate(recipe), 0.01);
  recipe.train.optimizer = OptimizerKind::adamw;
  EXPECT_EQ(first_float_rate(recipe), 0.001);
}

TEST(OwnRate, WarmsUpWhereTheRecipeDoesNot) {
  Recipe recipe;
  recipe.train.epochs = 12;
  EXPECT_EQ(with_own_rate(recipe, 0.03).learning_rate, 0.03);
  EXPECT_EQ(with_own_rate(recipe, 0.03).warmup_epochs, 1);
  recipe.train.epochs = 2;
  EXPECT_EQ(with_own_rate(recipe, 0.03).warmup_epochs, 0.5);
  recipe.train.epochs = 17;
  recipe.train.schedule = ScheduleKind::yolox;
  EXPECT_EQ(with_own_rate(recipe, 0.03).warmup_epochs, 0.5) << "its last 15 epochs have one rate";
  recipe.train.schedule = ScheduleKind::one_cycle;
  EXPECT_EQ(with_own_rate(recipe, 0.03).warmup_epochs, 0) << "which has a warm-up of its own";
  recipe.train.schedule = ScheduleKind::cosine;
  recipe.train.warmup_epochs = 0.1;
  EXPECT_EQ(with_own_rate(recipe, 0.03).warmup_epochs, 0.1);
}

TEST(OwnRate, IsKeptForARunThatGoesOn) {
  const Folder folder("kept_rate");
  const RunDirectory directory{folder.path()};
  std::filesystem::create_directories(directory.checkpoints());
  Recipe recipe;
  EXPECT_EQ(float_rate(recipe, directory), 0.1);
  keep_float_rate(directory, 0.03);
  EXPECT_EQ(float_rate(recipe, directory), 0.03);
  recipe.train.learning_rate = 0.2;
  EXPECT_EQ(float_rate(recipe, directory), 0.2) << "that of a recipe is never changed";
  recipe.train.learning_rate = 0;
  for (const char* damaged : {"", "x\n", "-1\n", "0.5\n"}) {
    write_file_atomically(directory.float_rate(), damaged);
    EXPECT_NE(message_of(ExitCode::data, [&] { float_rate(recipe, directory); }).find("float.rate"), std::string::npos);
  }
}

TEST(Ruin, IsAFirstEpochWorseThanItsFirstStepAndThanChance) {
  const Task task{Labels::image, {10, 1, 1}};
  const auto of = [&](double first, double loss) {
    return ruin({.first_loss = first, .train_cross_entropy = loss}, task);
  };
  EXPECT_EQ(of(2.4, std::log(10.0) + 0.6), "") << "a network that learns slowly";
  EXPECT_EQ(of(2.4, 3.0), "the loss was 2.400 in the first step and is 3.000 in epoch 1, by chance it would be 2.303");
  EXPECT_EQ(of(11.4, 10.6), "") << "a network that begins with large logits: lower rates take longer to mend that";
  EXPECT_NE(of(11.4, 11.5), "");
  EXPECT_EQ(ruin({.epoch = 1, .first_loss = 2.4, .train_cross_entropy = 3.0}, task), "");
  EXPECT_EQ(ruin({.train_cross_entropy = 41}, task), "") << "an epoch whose first step is not known";
  const Task boxes{Labels::boxes, {10, 1, 1}};
  EXPECT_EQ(ruin({.first_loss = 20, .train_cross_entropy = 39}, boxes), "");
  EXPECT_NE(ruin({.first_loss = 20, .train_cross_entropy = 41}, boxes), "");
}

/// A recipe whose network, without BatchNorm and on images of large values, high rates ruin.
Recipe ruinous_recipe() {
  Recipe recipe = tiny_recipe();
  recipe.model.graph = {{"flatten", "flatten", {}, {}}, {"fc", "linear", {}, {{"out_channels", 4}}}};
  recipe.data.std = {0.06};
  recipe.train.learning_rate = 0;
  recipe.qat.epochs = 0;
  return recipe;
}

struct Trained {
  std::string note, said;
  std::vector<EpochMetrics> epochs;
  double rate = 0;
};

Trained trained(const Recipe& recipe, const std::string& name) {
  const Folder folder(name);
  Run run = open_run(recipe, {folder.path()});
  std::filesystem::create_directories(run.directory.checkpoints());
  Weights weights = starting_weights(run);
  Trained result;
  testing::internal::CaptureStderr();
  result.note = train_float(run, weights, false);
  result.said = testing::internal::GetCapturedStderr();
  result.epochs = read_metrics(run.directory.metrics());
  result.rate = float_rate(recipe, run.directory);
  return result;
}

TEST(OwnRate, ATrainingThatItRuinsBeginsAgainLower) {
  const Recipe recipe = ruinous_recipe();
  const Trained own = trained(recipe, "own_rate");
  EXPECT_NE(own.said.find("train.learning_rate: 0.1 ruins the network: "), std::string::npos) << own.said;
  EXPECT_NE(own.said.find("begins again at 0.03"), std::string::npos) << own.said;
  EXPECT_EQ(own.said.find("; lower train.learning_rate"), std::string::npos) << own.said;
  EXPECT_EQ(own.note.rfind("train.learning_rate: 0.0", 0), 0U) << own.note;
  EXPECT_LT(own.rate, 0.1);
  ASSERT_EQ(own.epochs.size(), 2U) << "epochs of a training that was given up stay in no file";
  for (const EpochMetrics& epoch : own.epochs) EXPECT_LT(epoch.train_cross_entropy, std::log(2 * 4.0));

  Recipe same = recipe;  // as if it had begun with that rate
  same.train = with_own_rate(recipe, own.rate);
  const Trained alone = trained(same, "own_rate_alone");
  EXPECT_EQ(alone.note, "");
  ASSERT_EQ(alone.epochs.size(), 2U);
  EXPECT_EQ(alone.epochs[1].train_loss, own.epochs[1].train_loss) << "it begins from the same weights";
}

TEST(OwnRate, ATrainingThatBeganAgainGoesOnAtItsRate) {
  const Recipe recipe = ruinous_recipe();
  const Folder folder("own_rate_resumed");
  const octet::Run run = open_run(recipe, {folder.path()});
  std::filesystem::create_directories(run.directory.checkpoints());
  int steps = 0;  // four an epoch, one epoch at the first rate at least
  testing::internal::CaptureStderr();
  Weights weights = starting_weights(run);
  message_of(ExitCode::interrupted, [&] {
    train_float(run, weights, false, [&] { return float_rate(recipe, run.directory) < 0.1 && ++steps == 2; });
  });
  Weights others = starting_weights(run);
  const std::string note = train_float(run, others, true);
  testing::internal::GetCapturedStderr();
  const Trained whole = trained(recipe, "own_rate_whole");
  EXPECT_EQ(note, whole.note);
  EXPECT_EQ(read_metrics(run.directory.metrics()).back().train_loss, whole.epochs.back().train_loss);
}

TEST(OwnRate, ARateOfTheRecipeIsNotChanged) {
  Recipe recipe = ruinous_recipe();
  recipe.train.learning_rate = 0.1;
  std::string what;
  try {
    what = trained(recipe, "set_rate").said;
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    what = error.what();
  }
  EXPECT_EQ(what.find("begins again"), std::string::npos) << what;
  EXPECT_TRUE(what.find("lower train.learning_rate") != std::string::npos ||
              what.find("Lower train.learning_rate") != std::string::npos)
      << what;
}

}  // namespace
}  // namespace octet
