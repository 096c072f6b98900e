// SPDX-License-Identifier: Apache-2.0
// BatchNorm's statistics and observed ranges, computed anew for the network that is exported.
#include "trainers/loop/reestimate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "src/data/loader.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/training.h"
#include "trainers/loop/schedule.h"

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
  return images_to_tensor(pixels.data(), static_cast<int>(indices.size()), {1, 8, 8}, data.mean, data.std);
}

/// What each BatchNorm of the tiny network sees in one batch: mean and variance of convolutions on the grid.
std::map<std::string, at::Tensor> batch_statistics(QuantizedModel& model, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  model.forward(x, {.batch_norm_training = true}, [&](int, const at::Tensor& y) { values.push_back(y.clone()); });
  const FloatParams scales = model.weight_scales();
  std::map<std::string, at::Tensor> statistics;
  for (const Node& node : model.prepared().graph.nodes) {
    if (node.batch_norm.empty()) continue;
    const at::Tensor weight =
        fake_quantize_weight(model.weights().at(node.name + ".weight"), scales.at(node.name), {}).to(at::kDouble);
    c10::optional<at::Tensor> bias;
    if (node.bias) bias = model.weights().at(node.name + ".bias").to(at::kDouble);
    const Window& w = node.window;
    const at::Tensor y = at::conv2d(values[node.inputs[0]].to(at::kDouble), weight, bias, {w.stride_h, w.stride_w},
                                    {w.pad.top, w.pad.left});
    statistics[node.batch_norm + ".running_mean"] = y.mean({0, 2, 3});
    statistics[node.batch_norm + ".running_var"] = y.transpose(0, 1).flatten(1).var(1);
  }
  return statistics;
}

/// Augmented, for so they were in training: of pictures without parts cut out BatchNorm sees other means.
TEST(Reestimate, BatchNormsStatisticsAreTheMeansOverWholeBatchesOfAugmentedTrainingImages) {
  const Folder folder("reestimate");
  Recipe recipe = tiny_recipe();
  recipe.data.pad = 2;
  recipe.data.flip = true;
  recipe.data.cutout = 3;
  recipe.quant.scales = EdgeScales::fixed;
  recipe.qat.epochs = 1;
  recipe.qat.freeze_batch_norm = 0;
  recipe.qat.reestimate_batch_norm = 70;  // of 128, in batches of 32: 64
  CalibratedRun c(recipe, folder.path());
  train_qat(c.run, c.model, false);
  std::map<std::string, at::Tensor> found, expected;
  for (const auto& [name, tensor] : c.weights)
    if (name.find(".running_") != std::string::npos) found[name] = tensor.clone();
  ASSERT_EQ(found.size(), 4u);

  std::vector<size_t> every_other;
  for (size_t i = 0; i < 64; ++i) every_other.push_back(c.run.data.train[2 * i]);
  Loader loader(*c.run.data.train_set, every_other, c.run.data.train_transform,
                {.batch_size = 32, .train = true, .seed = step_seed(recipe.seed, "qat", 0, 0)});
  for (Batch batch; loader.next(batch);) {
    const at::Tensor x = images_to_tensor(batch.images.data(), 32, {1, 8, 8}, c.run.data.mean, c.run.data.std);
    for (const auto& [name, tensor] : batch_statistics(c.model, x))
      expected[name] = expected.contains(name) ? (expected[name] + tensor) / 2 : tensor;
  }
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(found.at(name).to(at::kDouble).allclose(tensor, 1e-5, 1e-6)) << name << found.at(name) << tensor;
}

TEST(Reestimate, ZeroImagesLeaveTheStatisticsAlone) {
  const Folder folder("reestimate_none");
  Recipe recipe = tiny_recipe();
  recipe.qat.freeze_batch_norm = 0;
  CalibratedRun c(recipe, folder.path());
  const at::Tensor mean = c.weights.at("bn1.running_mean").clone();
  train_qat(c.run, c.model, false);
  EXPECT_TRUE(mean.equal(c.weights.at("bn1.running_mean")));
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

TEST(Reestimate, WithEmaObservedRangesAreTheAveragesAndTheLiveOnesGoOn) {
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

TEST(Reestimate, FixedScalesStayWithEmaToo) {
  const Folder folder("ema_fixed");
  Recipe recipe = tiny_recipe();
  recipe.quant.scales = EdgeScales::fixed;
  recipe.qat.ema = 0.9;
  recipe.qat.reestimate_batch_norm = 64;
  CalibratedRun c(recipe, folder.path());
  const std::vector<QParams> before = c.model.edges();
  train_qat(c.run, c.model, false);
  EXPECT_EQ(c.model.edges(), before);
}

}  // namespace
}  // namespace octet
