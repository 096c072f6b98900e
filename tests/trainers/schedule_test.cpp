// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/error.h"

namespace octet {
namespace {

TEST(Schedule, WarmUpIsLinearAndEndsAtThePeak) {
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::step, ScheduleKind::cosine}) {
    const Schedule schedule{.kind = kind, .peak = 0.1, .steps = 110, .warmup = 10};
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.01);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 0.05);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 0.1);
  }
}

TEST(Schedule, CosineWorkedNumbers) {
  const Schedule schedule{.kind = ScheduleKind::cosine, .peak = 0.1, .steps = 110, .warmup = 10};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 0.05);                    // half of the way: cos(pi/2) = 0
  EXPECT_NEAR(learning_rate(schedule, 35), 0.085355339059327379, 1e-15);  // a quarter: 0.05 * (1 + sqrt(1/2))
  EXPECT_NEAR(learning_rate(schedule, 109), 2.4671981713420017e-05, 1e-15);
}

TEST(Schedule, StepMultipliesAtEachMilestone) {
  const Schedule schedule{.kind = ScheduleKind::step, .peak = 0.4, .steps = 100, .milestones = {50, 75}, .gamma = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 49), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 50), 0.04);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 74), 0.04);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 0.4 * 0.1 * 0.1);
}

TEST(Schedule, OneCycleGoesUpAndDownInStraightLines) {
  const Schedule schedule{.kind = ScheduleKind::one_cycle, .peak = 1.0, .steps = 100, .warmup = 25};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.04);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 0.04 + 0.96 * 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 25), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 40), 0.8);
  EXPECT_NEAR(learning_rate(schedule, 99), 1.0 / 75, 1e-15);
}

/// The numbers of yolox/utils/lr_scheduler.py, yolox_warm_cos_lr, for lr 0.08, 5 of 300 epochs of warm-up from 0, 15
/// without augmentation, min_lr_ratio 0.05, 10 iterations an epoch.
TEST(Schedule, YoloxIsThatOfItsAuthors) {
  OptimizerRecipe recipe;
  recipe.epochs = 300;
  recipe.learning_rate = 0.08;
  recipe.schedule = ScheduleKind::yolox;
  recipe.warmup_epochs = 5;
  const Schedule schedule = make_schedule(recipe, 10, 15);
  EXPECT_EQ(schedule.last, 150);
  EXPECT_EQ(learning_rate(schedule, 0), 0);
  EXPECT_NEAR(learning_rate(schedule, 25), 0.02, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 50), 0.08, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 1450), 0.004 + 0.038, 1e-15);  // the middle of 50 .. 2850
  EXPECT_NEAR(learning_rate(schedule, 2849), 0.004 + 0.038 * (1 + std::cos(std::acos(-1.0) * 2799 / 2800)), 1e-15);
  for (const long step : {2850L, 2900L, 2999L}) EXPECT_NEAR(learning_rate(schedule, step), 0.004, 1e-15);
  recipe.epochs = 15;  // no longer than its end: it has none
  EXPECT_EQ(make_schedule(recipe, 10, 15).last, 0);
  recipe.epochs = 20;
  EXPECT_THROW(make_schedule(recipe, 10, 15), Error);  // 5 of warm-up and 15 of the end leave nothing
}

TEST(Schedule, RecipeEpochsBecomeSteps) {
  OptimizerRecipe recipe;
  recipe.epochs = 10;
  recipe.learning_rate = 0.2;
  recipe.schedule = ScheduleKind::step;
  recipe.milestones = {5, 8};
  recipe.warmup_epochs = 0.5;
  const Schedule schedule = make_schedule(recipe, 40);
  EXPECT_EQ(schedule.steps, 400);
  EXPECT_EQ(schedule.warmup, 20);
  EXPECT_EQ(schedule.milestones, (std::vector<long>{200, 320}));
  EXPECT_DOUBLE_EQ(schedule.peak, 0.2);

  recipe.schedule = ScheduleKind::one_cycle;
  recipe.warmup_epochs = 0;
  EXPECT_EQ(make_schedule(recipe, 40).warmup, 120);
}

TEST(Schedule, RefusesWarmUpWithoutTraining) {
  OptimizerRecipe recipe;
  recipe.epochs = 2;
  recipe.warmup_epochs = 2;
  EXPECT_THROW(make_schedule(recipe, 10), Error);
  recipe.warmup_epochs = 1;
  EXPECT_NO_THROW(make_schedule(recipe, 10));
}

}  // namespace
}  // namespace octet
