// SPDX-License-Identifier: Apache-2.0
// When ranges of activations and BatchNorm's statistics stop following the data in QAT.
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainers/training.h"

namespace octet {
namespace {

using testing_trainers::Folder;
using testing_trainers::short_recipe;
using testing_trainers::Training;

constexpr int kAllSteps = 12;  // of short_recipe

/// What every step of a QAT moved.
struct Moved {
  std::vector<bool> ranges, statistics, weights;
};

Moved watch(double freeze_observers, double freeze_batch_norm) {
  const Folder folder("freeze");
  Training training(short_recipe(), folder.path() + "/state.safetensors", /*qat=*/true);
  training.phase.freeze_observers = freeze_observers;
  training.phase.freeze_batch_norm = freeze_batch_norm;
  {
    const c10::NoGradGuard no_grad;
    training.quantized->forward(at::randn({8, 1, 8, 8}), {.observe = true, .quantize = false});
    training.quantized->calibrate(CalibrationMethod::minmax, 100);
  }
  Moved moved;
  std::vector<QParams> edges = training.quantized->edges();
  std::map<std::string, at::Tensor> before;
  const auto changed = [&](const std::string& name) {
    const at::Tensor now = training.weights.at(name).detach().clone();
    const bool differs = !before.contains(name) || !now.equal(before.at(name));
    before[name] = now;
    return differs;
  };
  for (const char* name : {"bn1.running_mean", "conv1.weight"}) changed(name);
  training.phase.stop = [&] {
    const std::vector<QParams> now = training.quantized->edges();
    moved.ranges.push_back(now != edges);
    edges = now;
    moved.statistics.push_back(changed("bn1.running_mean"));
    moved.weights.push_back(changed("conv1.weight"));
    return false;
  };
  training.run();
  return moved;
}

std::vector<bool> first(int steps) {
  std::vector<bool> moved(kAllSteps);
  std::fill_n(moved.begin(), steps, true);
  return moved;
}

TEST(Freeze, RangesAndStatisticsStopAfterTheirShareOfTheSteps) {
  for (const auto& [observers, batch_norm] :
       {std::pair{0.75, 0.5}, {0.5, 0.75}, {0.25, 1.0}, {1.0, 0.25}, {0.0, 1.0}, {1.0, 0.0}}) {
    SCOPED_TRACE(testing::Message() << "freeze_observers " << observers << ", freeze_batch_norm " << batch_norm);
    const Moved moved = watch(observers, batch_norm);
    EXPECT_EQ(moved.weights, first(kAllSteps));
    EXPECT_EQ(moved.ranges, first(static_cast<int>(kAllSteps * observers)));
    EXPECT_EQ(moved.statistics, first(static_cast<int>(kAllSteps * batch_norm)));
  }
}

/// What BatchNorm gives changes when its statistics freeze; ranges must see that before they freeze themselves.
TEST(Freeze, ByDefaultRangesStillFollowAfterStatisticsFroze) {
  const QatRecipe usual;
  EXPECT_EQ(kUsualFreeze, 0.5);
  EXPECT_EQ(usual.freeze_observers, 0.75);
  const Moved moved = watch(usual.freeze_observers, kUsualFreeze);
  for (int step = 6; step < 9; ++step) {
    EXPECT_FALSE(moved.statistics[step]) << step;
    EXPECT_TRUE(moved.ranges[step]) << step;
  }
}

}  // namespace
}  // namespace octet
