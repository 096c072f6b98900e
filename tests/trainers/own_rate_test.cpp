// SPDX-License-Identifier: Apache-2.0
#include "trainers/run/advice.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "src/base/files.h"
#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/ranks.h"
#include "tests/trainers/training.h"
#include "trainers/run/pipeline.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun, testing_trainers::Folder, testing_trainers::message_of,
    testing_trainers::tiny_recipe;

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
  result.rate = run.float_rate;
  return result;
}

TEST(OwnRate, ATrainingThatItRuinsBeginsAgainLower) {
  const Recipe recipe = ruinous_recipe();
  const Trained own = trained(recipe, "own_rate");
  EXPECT_NE(own.said.find("train.learning_rate: 0.1 ruins the network: "), std::string::npos) << own.said;
  EXPECT_NE(own.said.find("begins again at 0.03"), std::string::npos) << own.said;
  EXPECT_NE(own.said.find("train.learning_rate: 0.1, after 0.5 epochs of warm-up (the recipe sets none)"),
            std::string::npos)
      << own.said;
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

/// Trains until `stop` says so, as Ctrl-C does, and goes on in a run opened anew.
Trained stopped_once(const Recipe& recipe, const std::string& name,
                     const std::function<bool(const octet::Run&)>& stop) {
  const Folder folder(name);
  octet::Run first = open_run(recipe, {folder.path()});
  std::filesystem::create_directories(first.directory.checkpoints());
  Trained result;
  testing::internal::CaptureStderr();
  Weights weights = starting_weights(first);
  message_of(ExitCode::interrupted, [&] { train_float(first, weights, false, [&] { return stop(first); }); });
  testing::internal::GetCapturedStderr();
  octet::Run second = open_run(recipe, {folder.path()});
  testing::internal::CaptureStderr();
  weights = starting_weights(second);
  result.note = train_float(second, weights, true);
  result.said = testing::internal::GetCapturedStderr();
  result.epochs = read_metrics(second.directory.metrics());
  result.rate = second.float_rate;
  EXPECT_EQ(result.rate, float_rate(recipe, second.directory)) << "what the next process begins with";
  return result;
}

TEST(OwnRate, ATrainingThatIsStoppedEndsAsOneThatIsNot) {
  const Recipe recipe = ruinous_recipe();
  const Trained whole = trained(recipe, "own_rate_whole");
  ASSERT_LT(whole.rate, 0.1);
  int at_lower = 0, at_first = 0, at_verdict = 0;  // steps; four make an epoch
  const Trained stopped[] = {
      stopped_once(recipe, "own_rate_lower",
                   [&](const octet::Run& run) { return run.float_rate < 0.1 && ++at_lower == 2; }),
      stopped_once(recipe, "own_rate_first", [&](const octet::Run&) { return ++at_first == 2; }),
      // Once its state is written, before the verdict on its first epoch.
      stopped_once(recipe, "own_rate_verdict", [&](const octet::Run&) { return ++at_verdict == 4; })};
  for (const Trained& one : stopped) {
    EXPECT_EQ(one.note, whole.note);
    EXPECT_EQ(one.rate, whole.rate);
    EXPECT_EQ(one.epochs.back().train_loss, whole.epochs.back().train_loss);
    EXPECT_EQ(one.said.find("(the recipe sets none)"), std::string::npos) << "where it begins, alone: " << one.said;
  }
}

/// No rate may be the cause of what comes later, and good epochs are in the state.
TEST(OwnRate, ALossThatIsNotFiniteLaterEndsTrainingWithItsState) {
  Recipe recipe = tiny_recipe();
  recipe.train.learning_rate = 0;
  const Folder folder("own_rate_later");
  octet::Run run = open_run(recipe, {folder.path()});
  std::filesystem::create_directories(run.directory.checkpoints());
  Weights weights = starting_weights(run);
  run.epoch_done = [&](const EpochMetrics&) {
    const c10::NoGradGuard no_grad;
    weights.at("fc.weight").fill_(NAN);
  };
  testing::internal::CaptureStderr();
  const std::string message = message_of(ExitCode::promise, [&] { train_float(run, weights, false); });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("epoch 2, step 1: training diverged"), std::string::npos) << message;
  EXPECT_EQ(said.find("begins again"), std::string::npos) << said;
  EXPECT_EQ(run.float_rate, 0.1);

  octet::Run next = open_run(recipe, {folder.path()});
  testing::internal::CaptureStderr();
  weights = starting_weights(next);
  train_float(next, weights, true);
  testing::internal::GetCapturedStderr();
  const Trained whole = trained(recipe, "own_rate_never_failed");
  EXPECT_EQ(read_metrics(next.directory.metrics()).back().train_loss, whole.epochs.back().train_loss);
}

/// Only a validation that follows the first epoch finds what ruined it in time to begin again.
TEST(OwnRate, TheFirstEpochIsValidatedWhateverTheInterval) {
  Recipe recipe = tiny_recipe();
  recipe.train.learning_rate = 0;
  recipe.train.epochs = 3;
  recipe.train.val_interval = 3;
  const auto validated = [](const Trained& of) {
    std::vector<int> epochs;
    for (const EpochMetrics& epoch : of.epochs)
      if (epoch.validation_loss) epochs.push_back(epoch.epoch);
    return epochs;
  };
  EXPECT_EQ(validated(trained(recipe, "own_rate_interval")), (std::vector<int>{1, 3}));
  recipe.train.learning_rate = 0.05;
  EXPECT_EQ(validated(trained(recipe, "own_rate_not_own")), (std::vector<int>{3}));
}

/// On GPUs ranks see a loss that is not finite after different steps, and must begin anew together.
TEST(OwnRate, RanksBeginAgainTogetherAtALossThatIsNotFinite) {
  Recipe recipe = tiny_recipe();
  recipe.train.learning_rate = 0;
  const Folder folder("own_rate_ranks_again");
  const RunDirectory directory{folder.path()};
  std::filesystem::create_directories(directory.checkpoints());
  std::vector<double> rates(2);
  testing::internal::CaptureStderr();
  const std::vector<std::string> thrown = testing_trainers::run_ranks(2, [&](Ranks& ranks) {
    octet::Run run = open_run(recipe, directory, at::kCPU, std::shared_ptr<Ranks>(&ranks, [](Ranks*) {}));
    Weights weights = starting_weights(run);
    int steps = 0;
    const auto break_one = [&] {  // what one computes goes to both
      if (++steps == 2 && run.float_rate == 0.1 && !ranks.first()) {
        const c10::NoGradGuard no_grad;
        weights.at("fc.weight").fill_(NAN);
      }
      return false;
    };
    train_float(run, weights, false, break_one);
    rates[static_cast<size_t>(ranks.rank())] = run.float_rate;
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(thrown, testing_trainers::kNobodyThrew);
  EXPECT_NE(said.find("epoch 1, step 3: training diverged: the loss is nan"), std::string::npos) << said;
  EXPECT_NE(said.find("begins again at 0.03"), std::string::npos) << said;
  EXPECT_EQ(rates, std::vector<double>(2, lower_rate(recipe, 0.1).value()));
  EXPECT_EQ(read_metrics(directory.metrics()).size(), 2U);
}

TEST(OwnRate, RanksEndWhereNoRateHelps) {
  Recipe recipe = ruinous_recipe();
  recipe.data.std = {1e-25};
  const Folder folder("own_rate_ranks");
  std::filesystem::create_directories(RunDirectory{folder.path()}.checkpoints());
  testing::internal::CaptureStderr();
  const std::vector<std::string> thrown = testing_trainers::run_ranks(2, [&](Ranks& ranks) {
    const std::shared_ptr<Ranks> mine(&ranks, [](Ranks*) {});
    octet::Run run = open_run(recipe, {folder.path()}, at::kCPU, mine);
    Weights weights = starting_weights(run);
    train_float(run, weights, false);
  });
  const std::string said = testing::internal::GetCapturedStderr();
  for (const std::string& message : thrown)
    EXPECT_NE(message.find("phase float, epoch 1, step"), std::string::npos) << message;
  EXPECT_NE(said.find("begins again at 0.001"), std::string::npos) << said;
}

TEST(OwnRate, SaysWhatOneCycleBeginsWith) {
  Recipe recipe = tiny_recipe();
  recipe.train.learning_rate = 0;
  recipe.train.schedule = ScheduleKind::one_cycle;
  const std::string said = trained(recipe, "own_rate_one_cycle").said;
  EXPECT_NE(said.find("train.learning_rate: 0.1, the peak of schedule one_cycle (the recipe sets none)"),
            std::string::npos)
      << said;
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

TEST(OwnRate, SharesOfQatsRateFallToATenth) {
  Recipe recipe;
  EXPECT_EQ(lower_share(recipe, 1), 0.3);
  EXPECT_EQ(lower_share(recipe, 0.3), 0.1);
  EXPECT_FALSE(lower_share(recipe, 0.1));
  recipe.qat.learning_rate = 0.01;
  EXPECT_FALSE(lower_share(recipe, 1)) << "that of a recipe is never changed";
}

}  // namespace
}  // namespace octet
