// SPDX-License-Identifier: Apache-2.0
// A training of the tiny network, as the tests of the loop run it on the CPU and on a GPU.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "tests/trainers/tiny.h"
#include "trainers/loop/train.h"

namespace octet::testing_trainers {

/// What a test of the loop varies.
struct Variant {
  std::string name;
  bool qat = false;
  bool learn = false;                           ///< QAT with scales that learn
  EdgeScales edges = EdgeScales::lsq;           ///< those of activations, then
  bool sparse = false;                          ///< weights are 2:4 sparse
  QatForward forward = QatForward::simulation;  ///< int8: of what learns, the scales of weights alone
  OptimizerKind optimizer = OptimizerKind::sgd;
  Precision precision = Precision::fp32;
  double ema = 0, clip_gradient = 0;
  bool channels_last = true;
  int threads = 1;                                             ///< CPU
  ResidentImages resident_images = ResidentImages::automatic;  ///< GPU
};

inline void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }

inline OptimizerRecipe short_recipe() {
  OptimizerRecipe recipe;
  recipe.epochs = 3;
  recipe.batch_size = 32;  // 4 steps an epoch
  recipe.learning_rate = 0.05;
  return recipe;
}

inline OptimizerRecipe recipe_of(const Variant& variant) {
  OptimizerRecipe recipe = short_recipe();
  recipe.optimizer = variant.optimizer;
  recipe.precision = variant.precision;
  recipe.ema = variant.ema;
  recipe.clip_gradient = variant.clip_gradient;
  recipe.channels_last = variant.channels_last;
  recipe.label_smoothing = 0.1;
  recipe.warmup_epochs = 1;
  if (recipe.optimizer == OptimizerKind::adamw) recipe.learning_rate = 0.005;
  return recipe;
}

/// One training from scratch: network, phase and where its state goes.
struct Training {
  Training(const OptimizerRecipe& recipe, const std::string& checkpoint, bool qat, at::Device device = at::kCPU)
      : Training(recipe, checkpoint, Variant{.name = "", .qat = qat}, device) {}

  /// variant: what is no part of the recipe.
  Training(const OptimizerRecipe& recipe, const std::string& checkpoint, const Variant& variant, at::Device device)
      : recipe_(recipe), data(tiny_data()), graph(tiny_graph()), weights(to_device(initial_weights(graph, 7), device)) {
    at::set_num_threads(1);  // a network this small only waits for a second one
    const bool qat = variant.qat, learn = variant.learn;
    phase.name = qat ? "qat" : "float";
    phase.recipe = &recipe_;
    phase.graph = &graph;
    phase.weights = &weights;
    phase.seed = 5;
    phase.fingerprint = "this run";
    phase.checkpoint = checkpoint;
    phase.stop = [] { return false; };
    phase.epoch_done = [this](const EpochResult& result) { epochs.push_back(result); };
    if (!qat) return;
    QuantizerOptions options{.averaging = 0.1};
    const bool on_codes = variant.forward == QatForward::int8;
    if (learn) options = {.weights = WeightCalibrator::lsq, .edges = on_codes ? EdgeScales::fixed : variant.edges};
    options.forward = variant.forward;
    QuantSpec spec = learn ? uniform_bits(4, 4) : QuantSpec();
    if (variant.sparse) spec.sparsity = Sparsity::two_of_four;
    quantized = std::make_unique<QuantizedModel>(prepare(fuse(graph), spec), weights, options);
    phase.quantized = quantized.get();
    phase.freeze_observers = learn ? 0 : 0.5;
    phase.freeze_batch_norm = 0.75;
    if (learn) calibrate();
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  /// What learns begins somewhere.
  void calibrate() {
    const at::NoGradGuard no_grad;
    at::manual_seed(3);
    quantized->forward(at::randn({8, 1, 8, 8}).to(phase.device()), {.observe = true, .quantize = false});
    quantized->calibrate(CalibrationMethod::minmax, 100);
  }

  void run() { train_phase(phase, data); }

  OptimizerRecipe recipe_;
  RunData data;
  Graph graph;
  Weights weights;
  std::unique_ptr<QuantizedModel> quantized;
  Phase phase;
  std::vector<EpochResult> epochs;
};

inline void expect_same_bits(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
}

/// Weights, observers and the last epoch's sums.
inline void expect_same_end(const Training& a, const Training& b) {
  expect_same_bits(a.weights, b.weights);
  if (a.quantized) expect_same_bits(a.quantized->state(), b.quantized->state());
  ASSERT_FALSE(b.epochs.empty());
  EXPECT_EQ(a.epochs.back().train_loss, b.epochs.back().train_loss);
  EXPECT_EQ(a.epochs.back().train_cross_entropy, b.epochs.back().train_cross_entropy);
  EXPECT_EQ(a.epochs.back().train_top1, b.epochs.back().train_top1);
}

/// Runs until `step` steps are done, then stops as by Ctrl-C.
inline void run_and_stop(Training& training, int step) {
  int done = 0;
  training.phase.stop = [&] { return ++done == step; };
  message_of(ExitCode::interrupted, [&] { training.run(); });
}

}  // namespace octet::testing_trainers
