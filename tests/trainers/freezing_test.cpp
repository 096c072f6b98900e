// SPDX-License-Identifier: Apache-2.0
// Freezing of oscillating weights in a training: frozen codes stay, a resumed run ends with the same bits, recipes
// without meaning are refused.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "kernels/training/weights.h"
#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/training.h"
#include "trainers/loop/step.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

Recipe freezing(WeightCalibrator calibrator) {
  Recipe recipe = tiny_recipe();
  recipe.quant.activation_bits = recipe.quant.weight_bits = 2;
  recipe.quant.weight_calibrator = calibrator;
  if (calibrator == WeightCalibrator::lsq) recipe.quant.scales = EdgeScales::lsq;
  recipe.qat.epochs = 4;  // 16 steps
  recipe.qat.learning_rate = 0.2;
  recipe.qat.freeze_oscillating = 0.005;  // one turn
  recipe.qat.freeze_oscillating_start = 0.015;
  return recipe;
}

TEST(Freezing, ThresholdFallsAsACosine) {
  const FreezingThreshold threshold{0.04, 0.01};
  EXPECT_DOUBLE_EQ(threshold.at(0, 100), 0.04);
  EXPECT_DOUBLE_EQ(threshold.at(50, 100), 0.025);
  EXPECT_NEAR(threshold.at(25, 100), 0.025 + 0.015 * std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(threshold.at(100, 100), 0.01, 1e-12);
  EXPECT_FALSE(FreezingThreshold{}.freezes());
}

/// Steps of hand: what is frozen after one keeps its code after all that follow, as the network computes it, while
/// scales learn and the other weights move.
TEST(Freezing, FrozenCodesStay) {
  const OptimizerRecipe recipe = [] {
    OptimizerRecipe r = testing_trainers::short_recipe();
    r.learning_rate = 0.2;
    return r;
  }();
  testing_trainers::Training training(recipe, "", {.name = "", .qat = true, .learn = true}, at::kCPU);
  training.phase.freezing = {0.005, 0.005};
  TrainStep step(training.phase);
  ASSERT_NE(step.freezer(), nullptr);
  std::map<std::string, at::Tensor> before = step.freezer()->state();
  for (auto& [name, t] : before) t = t.clone();
  const at::Tensor scale = training.quantized->weight_scale_tensor().detach().clone();
  double share = 0;
  for (int i = 0; i < 40; ++i) {
    at::manual_seed(i);
    step.set(0.2, i, 0.005);
    step.launch(at::randn({32, 1, 8, 8}), at::randint(4, {32}, at::kLong), {.observe = false});
    const auto after = step.freezer()->state();
    for (const auto& [name, direction] : after) {
      if (!name.ends_with(".direction")) continue;
      const std::string layer = name.substr(0, name.rfind('.'));
      const at::Tensor was = before.at(name).eq(kernels::kFrozen), code = after.at(layer + ".code");
      EXPECT_TRUE(at::equal(code.masked_select(was), before.at(layer + ".code").masked_select(was))) << layer << i;
      EXPECT_TRUE(direction.masked_select(was).eq(kernels::kFrozen).all().item<bool>());
      const std::vector<float> scales = training.quantized->weight_scales().at(layer);
      const at::Tensor weight = training.weights.at(layer + ".weight").detach();
      std::vector<int64_t> one_a_channel(weight.dim(), 1);
      one_a_channel[0] = weight.size(0);
      const at::Tensor computed = weight.div(at::tensor(scales).view(one_a_channel)).round().clamp(-7, 7);
      EXPECT_TRUE(at::equal(computed.masked_select(was), code.masked_select(was).to(at::kFloat))) << layer << i;
    }
    EXPECT_GE(step.freezer()->frozen(), share);
    share = step.freezer()->frozen();
    for (const auto& [name, t] : after) before[name] = t.clone();
  }
  EXPECT_GT(share, 0.02);
  EXPECT_LT(share, 0.98);
  EXPECT_GT(training.quantized->weight_scale_tensor().detach().ne(scale).to(at::kFloat).mean().item<float>(), 0.9);
}

TEST(Freezing, ResumeEndsWithTheSameBits) {
  for (const WeightCalibrator calibrator : {WeightCalibrator::lsq, WeightCalibrator::mse}) {
    std::map<std::string, at::Tensor> ends[2];
    for (const int stop : {0, 6}) {
      const Folder folder("freezing");
      CalibratedRun c(freezing(calibrator), folder.path());
      const at::Tensor start = c.model.weight_scale_tensor().detach().clone();
      QuantizedModel* end = &c.model;
      QuantizedModel resumed = c.model;
      if (stop > 0) {
        int steps = 0;
        EXPECT_THROW(train_qat(c.run, c.model, false, [&] { return ++steps == stop; }), Error);
        resumed = make_quantized(c.run, starting_weights(c.run));
        calibrate(resumed, c.run);
        end = &resumed;
      }
      train_qat(c.run, *end, stop > 0);
      std::map<std::string, at::Tensor>& all = ends[stop > 0];
      all = end->state();
      for (const auto& [name, w] : end->weights()) all.emplace("model." + name, w.detach().clone());
      EXPECT_EQ(at::equal(end->weight_scale_tensor().detach(), start), calibrator == WeightCalibrator::mse)
          << "learned or kept";
      save_quantized(*end, c.run.directory.quantized());
      testing_trainers::expect_same_bits(load_quantized(c.run).state(), end->state());
    }
    testing_trainers::expect_same_bits(ends[0], ends[1]);
  }
}

/// Without it other weights come out: the key does something.
TEST(Freezing, ChangesWhatIsTrained) {
  at::Tensor ends[2];
  for (const bool freezes : {false, true}) {
    const Folder folder("freezing_off");
    Recipe recipe = freezing(WeightCalibrator::lsq);
    if (!freezes) recipe.qat.freeze_oscillating = recipe.qat.freeze_oscillating_start = 0;
    CalibratedRun c(recipe, folder.path());
    train_qat(c.run, c.model, false);
    ends[freezes] = c.model.weights().at("fc.weight").detach().clone();
  }
  EXPECT_FALSE(at::equal(ends[0], ends[1]));
}

TEST(Freezing, RecipesWithoutMeaningAreRefusedWithTheReason) {
  const auto expect = [](const std::vector<std::string>& overrides, const std::string& part) {
    const std::string text = message_of(ExitCode::usage, [&] {
      parse_recipe("data: {format: synthetic}\nmodel: {name: small_cnn}\n", "r.yaml", overrides);
    });
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect({"qat.freeze_oscillating=0.01"}, "qat.freeze_oscillating: weights oscillate in QAT, but qat.epochs is 0");
  expect({"qat.epochs=1", "qat.freeze_oscillating=0.01", "qat.ema=0.9"},
         "qat.freeze_oscillating: freezes the last step's codes, but what is kept is an average (qat.ema 0.9)");
  expect({"qat.epochs=1", "qat.freeze_oscillating_start=0.04"}, "qat.freeze_oscillating_start: nothing is frozen");
  expect({"qat.epochs=1", "qat.freeze_oscillating=0.04", "qat.freeze_oscillating_start=0.01"},
         "qat.freeze_oscillating_start: 0.01 is below qat.freeze_oscillating 0.04");
  expect({"qat.epochs=1", "qat.freeze_oscillating=0.01", "quant.sparsity=2:4"}, "quant.sparsity: 2:4 chooses");
}

}  // namespace
}  // namespace octet
