// SPDX-License-Identifier: Apache-2.0
#include "trainers/loop/schedule.h"

#include <gtest/gtest.h>

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
