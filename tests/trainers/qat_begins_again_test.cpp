// SPDX-License-Identifier: Apache-2.0
// QAT whose beginning ruins the network: what is ruin, and what it begins again with.
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/training.h"
#include "trainers/run/advice.h"
#include "trainers/run/records.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun, testing_trainers::expect_same_bits, testing_trainers::Folder,
    testing_trainers::make_statistics, testing_trainers::message_of, testing_trainers::tiny_recipe;

/// What is said of an epoch of QAT, and of the float network.
struct Judged {
  double loss = 2.306, top1 = 0.099, float_top1 = 0.333;
  int classes = 10, epoch = 0, epochs = 3;
  double warmup = 0;
  long steps = 191;  // of an epoch
};

std::string ruin_of(const Judged& c, bool* asked = nullptr) {
  OptimizerRecipe recipe;
  recipe.epochs = c.epochs;
  recipe.warmup_epochs = c.warmup;
  const Task task{.output = {c.classes, 1, 1}};
  EpochResult result;
  result.epoch = c.epoch;
  result.train_cross_entropy = c.loss;
  result.train_top1 = c.top1;
  return qat_ruin(result, recipe, c.steps, task, [&] {
    if (asked) *asked = true;
    Evaluation known{.name = "float"};
    known.task = task;
    known.images = 1000;
    known.top1 = c.float_top1;
    return known;
  });
}

TEST(QatRuin, IsALossNoBetterThanByChanceOfANetworkThatKnewMore) {
  const double chance = std::log(10.0);
  EXPECT_EQ(ruin_of({}), "the loss is 2.306 in epoch 1, by chance it would be 2.303");
  EXPECT_NE(ruin_of({.loss = 0.981 * chance, .top1 = 0.121}), "") << "an EfficientNet-B0 at 0.001";
  EXPECT_EQ(ruin_of({.loss = 0.979 * chance}), "");
  EXPECT_EQ(ruin_of({.float_top1 = 0.11}), "") << "the float network is at chance, too";
  EXPECT_EQ(ruin_of({.loss = 2.5, .top1 = 0.55, .float_top1 = 0.6}), "") << "a few images explode";
  EXPECT_EQ(ruin_of({.loss = 4.503, .top1 = 0.124, .float_top1 = 0.7, .classes = 60}), "") << "two bits that learn";
  EXPECT_NE(ruin_of({.loss = 0.693, .top1 = 0.51, .float_top1 = 0.95, .classes = 2}), "");
  bool asked = false;
  EXPECT_EQ(ruin_of({.loss = 1.9}, &asked), "") << "classes that are not equally frequent";
  EXPECT_FALSE(asked) << "evaluating the float network takes time";
}

TEST(QatRuin, IsJudgedByTheEpochOfTheHundredthStepAfterTheWarmUp) {
  struct {
    long steps;
    double warmup;
    int epochs, judged;
  } rows[] = {{100, 0, 1, 0},   {99, 0, 3, 1},    {30, 0, 7, 3},  {1, 0, 199, 99},
              {191, 0.5, 3, 1}, {191, 0.4, 3, 0}, {191, 5, 11, 5}};
  for (const auto& row : rows) {
    OptimizerRecipe recipe;
    recipe.epochs = row.epochs;
    recipe.warmup_epochs = row.warmup;
    EXPECT_EQ(qat_beginning(recipe, row.steps), row.judged);
    for (const int epoch : {0, 1, 2, 3, 5, 98, 99, 100})
      EXPECT_EQ(!ruin_of({.epoch = epoch, .epochs = row.epochs, .warmup = row.warmup, .steps = row.steps}).empty(),
                epoch == row.judged)
          << row.steps << " steps, epoch " << epoch;
    recipe.epochs = row.judged == 0 ? row.epochs : 2 * row.judged;
    EXPECT_EQ(qat_beginning(recipe, row.steps), 0) << "half of the epochs would be over";
    if (row.judged > 0)
      EXPECT_EQ(ruin_of({.epochs = recipe.epochs, .warmup = row.warmup, .steps = row.steps}), "") << row.steps;
  }
}

/// Returns what every step of a QAT is asked, which ruins a weight after the second step of the first trainings.
std::function<bool()> ruining(CalibratedRun& c, int& steps, int trainings = 1) {
  return [&c, &steps, trainings] {
    if (++steps % 2 == 0 && steps <= 2 * trainings)
      c.weights.at("conv1.weight").detach().fill_(std::numeric_limits<float>::infinity());
    return false;
  };
}

/// Ends with the same bits as QAT of `recipe` that nothing ruins, from the same calibrated model.
void expect_as_if_begun_so(CalibratedRun& c, const Recipe& recipe, const std::function<void(CalibratedRun&)>& prepare,
                           const std::string& folder) {
  CalibratedRun alone(recipe, folder);
  prepare(alone);
  train_qat(alone.run, alone.model, false);
  expect_same_bits(c.model.state(), alone.model.state());
  for (const auto& [name, tensor] : alone.weights) EXPECT_TRUE(c.weights.at(name).equal(tensor)) << name;
}

TEST(QatBeginsAgain, LowerWhereItDivergesInItsFirstEpoch) {
  const Folder folder("own_share");
  Recipe recipe = tiny_recipe();
  recipe.qat.learning_rate = 0;
  recipe.quant.scales = EdgeScales::observed;  // ranges that have moved go back, too
  CalibratedRun c(recipe, folder.path() + "/own");
  int steps = 0;
  testing::internal::CaptureStderr();
  train_qat(c.run, c.model, false, ruining(c, steps));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("qat.learning_rate: 0.005 ruins the network: "), std::string::npos) << said;
  EXPECT_NE(said.find("begins again at 0.0015"), std::string::npos) << said;
  EXPECT_EQ(c.run.qat_share, 0.3);
  EXPECT_EQ(open_run(recipe, c.run.directory).qat_share, 0.3) << "kept for --resume and the float control";
  EXPECT_EQ(read_metrics(c.run.directory.metrics()).size(), 2U);
  recipe.qat.learning_rate = 0.3 * 0.005;
  expect_as_if_begun_so(
      c, recipe, [](CalibratedRun&) {}, folder.path() + "/alone");
}

TEST(QatBeginsAgain, NotWhereTheRecipeSetsWhatItWouldChange) {
  const Folder folder("own_share_set");
  Recipe recipe = tiny_recipe();
  recipe.qat.freeze_batch_norm = 0.5;
  CalibratedRun c(recipe, folder.path());
  int steps = 0;
  const std::string message =
      message_of(ExitCode::promise, [&] { train_qat(c.run, c.model, false, ruining(c, steps)); });
  EXPECT_NE(message.find("training diverged"), std::string::npos) << message;
  EXPECT_EQ(c.run.qat_share, 1);
}

/// Gives BatchNorm statistics that images made, though not those of these images, so that ranges begin elsewhere.
void make_stale(CalibratedRun& c) {
  make_statistics(c);
  c.weights.at("bn1.running_var").detach().mul_(1e4);
  calibrate(c.model, c.run);
}

/// Ranges that followed (eight bits) or learned (four) from where training sees them are as calibrated again.
TEST(QatBeginsAgain, WithStatisticsThatStayAndThenLower) {
  for (const int bits : {8, 4})
    for (const int trainings : {1, 2}) {
      SCOPED_TRACE(testing::Message() << bits << " bits, ruined " << trainings);
      const Folder folder("begins_frozen");
      Recipe recipe = tiny_recipe();
      recipe.qat.learning_rate = 0;
      recipe.quant.activation_bits = bits;
      recipe.calibrate.images = 128;
      recipe.calibrate.batch_size = 64;
      CalibratedRun c(recipe, folder.path() + "/own");
      make_stale(c);
      const std::vector<QParams> calibrated = c.model.edges();
      int steps = 0;
      const QatStart start = train_qat(c.run, c.model, false, ruining(c, steps, trainings));
      EXPECT_EQ(start.freeze_batch_norm, 0);
      EXPECT_TRUE(start.froze && start.ruined && !start.stale);
      EXPECT_EQ(start.scales, bits == 8 ? EdgeScales::fixed : EdgeScales::lsq);
      EXPECT_EQ(c.model.edges() == calibrated, bits == 8);
      const std::string last = start.notes.back(), before = start.notes.end()[-2];
      EXPECT_NE((trainings == 1 ? last : before).find("each batch the training is ruined"), std::string::npos) << last;
      EXPECT_EQ(last.find("begins again at 0.0015") != std::string::npos, trainings == 2) << last;
      const QatStart kept = kept_qat_start(c.run.directory).value();
      EXPECT_TRUE(kept.notes == start.notes && kept.ruined) << "for --resume";
      EXPECT_EQ(c.run.qat_share, trainings == 1 ? 1 : 0.3);
      recipe.qat.freeze_batch_norm = 0;
      recipe.qat.learning_rate = qat_rate(c.run).rate;
      if (bits == 8) recipe.quant.scales = EdgeScales::fixed;
      expect_as_if_begun_so(c, recipe, make_stale, folder.path() + "/alone");
    }
}

/// One process overflows on an image of its own: its range is shared before either throws, so that both do.
TEST(QatBeginsAgain, InAllProcessesWhereTheRangesOfOneAreNotFinite) {
  const Folder folder("begins_together");
  Recipe recipe = tiny_recipe();
  recipe.quant.scales = EdgeScales::observed;
  CalibratedRun c(recipe, folder.path());
  const c10::NoGradGuard no_grad;
  for (const float value : {1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    int gathered = 0;
    const GatherShares gather = [&](const at::Tensor& mine) {
      ++gathered;
      return at::stack({mine, at::full_like(mine, value)});
    };
    for (const float own : {1.0F, value}) {
      at::Tensor x = validation_inputs(c.run, 4).at(0).clone();
      x.view({-1})[0] = own;
      const auto forward = [&] { c.model.forward(x, {.observe = true, .range_shares = &gather}); };
      gathered = 0;
      if (value == 1)
        forward();
      else
        EXPECT_NE(message_of(ExitCode::promise, forward).find("NaN or infinite"), std::string::npos);
      EXPECT_GT(gathered, 0) << own;
    }
  }
}

/// Random weights have the mean 0 and the variance 1, which steps then move.
TEST(QatBeginsAgain, LowerWhereNoImagesHaveMadeTheStatistics) {
  const Folder folder("begins_random");
  Recipe recipe = tiny_recipe();
  recipe.qat.learning_rate = 0;
  CalibratedRun c(recipe, folder.path());
  int steps = 0;
  EXPECT_EQ(train_qat(c.run, c.model, false, ruining(c, steps)).freeze_batch_norm, 0.5);
  EXPECT_EQ(c.run.qat_share, 0.3);
}

/// A training at chance ends in no error. Its first epoch is not among the metrics.
TEST(QatBeginsAgain, WhereItsFirstEpochKnowsNoMoreThanChance) {
  const Folder folder("begins_at_chance");
  Recipe recipe = tiny_recipe();
  recipe.train.epochs = 8;
  recipe.qat.batch_size = 1;  // 128 steps
  recipe.quant.scales = EdgeScales::fixed;
  CalibratedRun c(recipe, folder.path() + "/own");
  train_float(c.run, c.weights, false);
  calibrate(c.model, c.run);
  int steps = 0;
  testing::internal::CaptureStderr();
  const QatStart start = train_qat(c.run, c.model, false, [&] {
    const c10::NoGradGuard no_grad;
    if (++steps < 128) c.weights.at("fc.weight").zero_(), c.weights.at("fc.bias").zero_();
    return false;
  });
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("by chance it would be 1.386"), std::string::npos) << said;
  EXPECT_EQ(start.freeze_batch_norm, 0) << said;
  EXPECT_EQ(steps, 3 * 128) << "the first epoch, and two that count";
  const std::vector<EpochMetrics> metrics = read_metrics(c.run.directory.metrics());
  ASSERT_EQ(metrics.size(), 10U);
  EXPECT_LT(metrics.back().train_cross_entropy, 1.2);
}

}  // namespace
}  // namespace octet
