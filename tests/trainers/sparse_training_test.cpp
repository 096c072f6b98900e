// SPDX-License-Identifier: Apache-2.0
// 2:4 sparsity through a training: masks follow the weights, what is pruned decays, the exported codes obey.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/training.h"
#include "trainers/loop/step.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

Recipe sparse() {
  Recipe recipe = tiny_recipe();
  recipe.quant.sparsity = Sparsity::two_of_four;
  recipe.qat.epochs = 4;
  recipe.qat.learning_rate = 0.05;
  return recipe;
}

TEST(SparseTraining, ExportsCodesThatObeyAndMovesMasks) {
  for (const WeightCalibrator calibrator : {WeightCalibrator::minmax, WeightCalibrator::lsq}) {
    const Folder folder("sparse");
    Recipe recipe = sparse();
    recipe.quant.weight_calibrator = calibrator;
    CalibratedRun c(recipe, folder.path());
    const at::Tensor before = c.model.used_weights().at("fc.weight").detach().ne(0);
    train_qat(c.run, c.model, false);
    const at::Tensor after = c.model.used_weights().at("fc.weight").detach().ne(0);
    EXPECT_GT(after.ne(before).sum().item<int64_t>(), 0) << "SR-STE lets pruned weights come back";
    const Int8Graph graph = c.model.convert(c.run.preprocessing, {});  // which checks every group
    for (const Int8Node& node : graph.nodes)
      EXPECT_EQ(node.two_of_four, node.name == "conv2" || node.name == "fc") << node.name;
    save_quantized(c.model, c.run.directory.quantized());
    EXPECT_EQ(load_quantized(c.run).convert(c.run.preprocessing, {}).nodes.back().weight, graph.nodes.back().weight);
  }
}

TEST(SparseTraining, ResumeEndsWithTheSameBits) {
  std::map<std::string, at::Tensor> ends[2];
  for (const int stop : {0, 5}) {
    const Folder folder("sparse_resume");
    CalibratedRun c(sparse(), folder.path());
    QuantizedModel end = c.model;
    if (stop > 0) {
      int steps = 0;
      EXPECT_THROW(train_qat(c.run, c.model, false, [&] { return ++steps == stop; }), Error);
      end = make_quantized(c.run, starting_weights(c.run));
      calibrate(end, c.run);
    }
    train_qat(c.run, end, stop > 0);
    for (const auto& [name, w] : end.weights()) ends[stop > 0].emplace(name, w.detach().clone());
  }
  testing_trainers::expect_same_bits(ends[0], ends[1]);
}

/// The step's gradient is the loss's, and 2e-4 w more for every weight w that is not used.
TEST(SparseTraining, WhatIsNotUsedDecays) {
  const OptimizerRecipe recipe = testing_trainers::short_recipe();
  testing_trainers::Training training(recipe, "", {.name = "", .qat = true, .sparse = true}, at::kCPU);
  training.calibrate();
  at::manual_seed(2);
  const at::Tensor x = at::randn({32, 1, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor labels = at::randint(4, {32}, at::kLong);
  TrainStep step(training.phase);
  QuantizedModel& model = *training.quantized;
  mean_loss(model.forward(x, {.training = true, .batch_norm_training = true}), labels, 0).backward();
  std::map<std::string, at::Tensor> gradients, weights;
  for (const char* name : {"conv1.weight", "conv2.weight", "fc.weight"}) {
    gradients[name] = training.weights.at(name).grad().clone();
    weights[name] = training.weights.at(name).detach().clone();
  }
  const Weights used = model.used_weights();
  step.set(0.01, 0);
  step.launch(x, labels, {.observe = false});
  for (const auto& [name, gradient] : gradients) {
    const at::Tensor unused = used.at(name).detach().eq(0).to(at::kFloat);
    EXPECT_EQ(unused.mean().item<float>(), name == "conv1.weight" ? 0 : 0.5f) << name;
    const at::Tensor more = training.weights.at(name).grad() - gradient;
    EXPECT_LE((more - 2e-4 * weights.at(name) * unused).abs().max().item<float>(), 1e-7f) << name;
    EXPECT_EQ(more.abs().max().item<float>() > 1e-5f, name != "conv1.weight") << name;
  }
}

TEST(SparseTraining, RoundingUpIsRefused) {
  const std::string text = message_of(ExitCode::usage, [] {
    parse_recipe("data: {format: synthetic}\nmodel: {name: small_cnn}\n", "r.yaml",
                 {"quant.sparsity=2:4", "calibrate.rounding=adaround"});
  });
  EXPECT_NE(text.find("quant.sparsity: 2:4 needs its zeros, which calibrate.rounding adaround may round up"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace octet
