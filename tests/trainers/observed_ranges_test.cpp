// SPDX-License-Identifier: Apache-2.0
// Observed ranges, read anew for the network that is exported.

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "src/quant/plan.h"
#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/training.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::expect_same_bits;
using testing_trainers::Folder;
using testing_trainers::short_recipe;
using testing_trainers::tiny_recipe;
using testing_trainers::Training;

at::Tensor images_of(const RunData& data, const std::vector<size_t>& indices) {
  std::vector<uint8_t> pixels;
  for (const size_t index : indices) {
    const Image image = data.train_set->read(index);
    pixels.insert(pixels.end(), image.pixels.begin(), image.pixels.end());
  }
  return images_to_tensor({pixels.data(), static_cast<int>(indices.size()), {1, 8, 8}}, data.mean, data.std);
}

/// Edges of a network with these very weights whose observers never saw anything but the calibration images.
std::vector<QParams> observed_edges(const Training& training) {
  const at::NoGradGuard no_grad;
  Weights weights;
  for (const auto& [name, tensor] : training.weights) weights[name] = tensor.detach().clone();
  QuantizedModel model(prepare(fuse(training.graph), {}), weights, {.averaging = 0.1});
  model.forward(images_of(training.data, training.data.calibration), {.observe = true});
  return model.edges();
}

TEST(ObservedRanges, WithEmaObservedRangesAreTheAveragesAndTheLiveOnesGoOn) {
  OptimizerRecipe recipe = short_recipe();
  recipe.ema = 0.99;
  const Folder folder("ema_ranges");
  Training training(recipe, folder.path() + "/state.safetensors", /*qat=*/true);
  std::vector<QParams> live;
  training.phase.stop = [&] {
    live = training.quantized->edges();
    return false;
  };
  int validated = 0;
  training.phase.epoch_done = [&](const EpochResult&) {
    EXPECT_EQ(training.quantized->edges(), observed_edges(training));
    EXPECT_NE(training.quantized->edges(), live);
    ++validated;
  };
  training.run();
  EXPECT_EQ(validated, 3);
  EXPECT_EQ(training.quantized->edges(), observed_edges(training));

  Training unseen(recipe, folder.path() + "/unseen.safetensors", /*qat=*/true);
  unseen.phase.epoch_done = nullptr;
  unseen.run();
  expect_same_bits(training.weights, unseen.weights);
}

TEST(ObservedRanges, FixedScalesStayWithEmaToo) {
  const Folder folder("ema_fixed");
  Recipe recipe = tiny_recipe();
  recipe.quant.scales = EdgeScales::fixed;
  recipe.qat.ema = 0.9;
  CalibratedRun c(recipe, folder.path());
  const std::vector<QParams> before = c.model.edges();
  train_qat(c.run, c.model, false);
  EXPECT_EQ(c.model.edges(), before);
}

}  // namespace
}  // namespace octet
