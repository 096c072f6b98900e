// SPDX-License-Identifier: Apache-2.0
// What QAT does to the ranges of activations: quant.scales fixed leaves the calibrated ones as they are, observed lets
// them follow the data until they freeze.
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "tests/trainers/calibrated_run.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

Recipe recipe_with(EdgeScales scales, ObserverKind observer = ObserverKind::moving_average) {
  Recipe recipe = tiny_recipe();
  recipe.quant.scales = scales;
  recipe.quant.observer = observer;
  return recipe;
}

TEST(Scales, FixedOnesAreTheCalibratedOnesInEveryBitAndObservedOnesMove) {
  for (const auto& [observer, name] : kObserverKinds) {
    for (const EdgeScales scales : {EdgeScales::fixed, EdgeScales::observed}) {
      const Folder folder("scales");
      CalibratedRun c(recipe_with(scales, observer), folder.path());
      const std::vector<QParams> before = c.model.edges();
      const at::Tensor weight = c.weights.at("conv1.weight").detach().clone();
      train_qat(c.run, c.model, false);
      const std::vector<QParams> after = c.model.edges();
      EXPECT_FALSE(weight.equal(c.weights.at("conv1.weight"))) << "nothing was trained";
      if (scales == EdgeScales::fixed) {
        EXPECT_EQ(after, before) << name;
        continue;
      }
      const std::vector<Node>& nodes = c.model.prepared().graph.nodes;
      for (size_t n = 0; n < nodes.size(); ++n) {
        if (nodes[n].op == Op::conv2d) {
          EXPECT_NE(after[n], before[n]) << name << ", " << nodes[n].name;
        }
      }
    }
  }
}

/// Evaluation, and so calibration, may see values a thousand times as far as training does.
TEST(Scales, AutoBeginsWithTheValuesOfTrainingWhereRangesFollow) {
  for (const bool chosen : {false, true}) {
    const Folder folder("scales_begin");
    Recipe recipe = recipe_with(EdgeScales::observed);
    if (!chosen) recipe.quant.scales.reset();
    recipe.qat.learning_rate = 1e-6;
    CalibratedRun c(recipe, folder.path());
    const std::vector<QParams> before = c.model.edges();
    const std::vector<Node>& nodes = c.model.prepared().graph.nodes;
    std::vector<QParams> wide = before;
    for (size_t n = 0; n < nodes.size(); ++n)
      if (nodes[n].op == Op::conv2d) wide[n].scale *= 1000;
    c.model.set_edges(wide);
    EXPECT_EQ(train_qat(c.run, c.model, false, interrupted, /*lost=*/0.5).scales, EdgeScales::observed);
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n].op != Op::conv2d) continue;
      const float times = c.model.edges()[n].scale / before[n].scale;
      if (chosen) EXPECT_GT(times, 50) << nodes[n].name;
      if (!chosen) EXPECT_LT(times, 5) << nodes[n].name;
    }
  }
}

TEST(Scales, WhatWasNeverCalibratedIsRefusedWithTheCure) {
  const Folder folder("scales_none");
  const Recipe recipe = recipe_with(EdgeScales::fixed);
  auto run = open_run(recipe, {folder.path()});
  start_run_directory(run.directory, recipe, {});
  QuantizedModel model = make_quantized(run, starting_weights(run));
  const std::string message = message_of(ExitCode::usage, [&] { train_qat(run, model, false); });
  EXPECT_NE(message.find("never calibrated"), std::string::npos) << message;
  EXPECT_NE(message.find("set quant.scales: observed"), std::string::npos) << message;
}

TEST(Scales, AHistogramIsRefusedOnTheGpuOnlyWhereScalesAreObserved) {
  const at::Device gpu(at::kCUDA, 0);  // which is not needed: this is asked before anything runs there
  for (const EdgeScales scales : {EdgeScales::fixed, EdgeScales::observed}) {
    auto run = open_run(recipe_with(scales, ObserverKind::histogram), {});
    run.device = gpu;
    run.recipe.cuda.resident_images = ResidentImages::off;
    if (scales == EdgeScales::fixed) {
      require_trainable(run);
    } else {
      EXPECT_NE(message_of(ExitCode::usage, [&] { require_trainable(run); }).find("quant.scales: fixed"),
                std::string::npos);
    }
  }
}

/// A forward pass on codes is refused before the float phase, for what the recipe alone does not tell.
TEST(Scales, AForwardPassOnCodesIsRefusedBeforeTraining) {
  const at::Device gpu(at::kCUDA, 0);
  const auto refusal_of = [](const Recipe& recipe, at::Device device) {
    auto run = open_run(recipe, {});
    run.device = device;
    run.recipe.cuda.resident_images = ResidentImages::off;
    const std::string message = message_of(ExitCode::usage, [&] { require_trainable(run); });
    EXPECT_NE(message.find("qat.forward: simulation"), std::string::npos) << message;
    return message;
  };
  Recipe recipe = recipe_with(EdgeScales::observed);
  recipe.qat.forward = QatForward::int8;
  EXPECT_NE(refusal_of(recipe, at::kCPU).find("int8 runs on a GPU only"), std::string::npos);
  if (!find_engine("cuda").available().ok) {
    EXPECT_NE(refusal_of(recipe, gpu).find("int8 trains on engine cuda"), std::string::npos);
  }
  recipe.quant.layers = {{.match = "conv2", .activation_bits = 3}};
  const std::string message = refusal_of(recipe, gpu);
  EXPECT_NE(message.find("'conv2': it writes codes of 3 bits"), std::string::npos) << message;
  recipe.qat.epochs = 0;  // no QAT, no forward pass of it
  auto run = open_run(recipe, {});
  EXPECT_NO_THROW(require_trainable(run));
}

TEST(Scales, AStateOfOtherScalesIsRefused) {
  const Folder folder("scales_resume");
  {
    CalibratedRun c(recipe_with(EdgeScales::observed), folder.path());
    train_qat(c.run, c.model, false);
  }
  auto run = open_run(recipe_with(EdgeScales::fixed), {folder.path()});
  QuantizedModel model = make_quantized(run, starting_weights(run));
  calibrate(model, run);
  const std::string message = message_of(ExitCode::usage, [&] { train_qat(run, model, true); });
  EXPECT_NE(message.find(run.directory.qat_state()), std::string::npos) << message;
  EXPECT_NE(message.find("its recipe"), std::string::npos) << message;
}

}  // namespace
}  // namespace octet
