// SPDX-License-Identifier: Apache-2.0
// Scales that learn in a training: which move, what is kept and averaged, what the recipe may not say.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/trainers/calibrated_run.h"
#include "tests/trainers/training.h"
#include "trainers/loop/optimizer.h"

namespace octet {
namespace {

using testing_trainers::CalibratedRun;
using testing_trainers::Folder;
using testing_trainers::message_of;
using testing_trainers::tiny_recipe;

Recipe learning(EdgeScales scales = EdgeScales::lsq, WeightCalibrator weights = WeightCalibrator::lsq) {
  Recipe recipe = tiny_recipe();
  recipe.quant.scales = scales;
  recipe.quant.weight_calibrator = weights;
  recipe.quant.activation_bits = recipe.quant.weight_bits = 3;
  recipe.calibrate.method = CalibrationMethod::mse;
  return recipe;
}

/// Those of edges with qparams of their own.
std::vector<float> edge_scales(const QuantizedModel& model) {
  std::vector<float> scales;
  const std::vector<QParams> edges = model.edges();
  for (size_t n = 0; n < edges.size(); ++n)
    if (model.prepared().has_edge(static_cast<int>(n))) scales.push_back(edges[n].scale);
  return scales;
}

TEST(LearnedScalesTraining, EachKindLearnsByItself) {
  for (const EdgeScales edges : {EdgeScales::fixed, EdgeScales::lsq}) {
    for (const WeightCalibrator weights : {WeightCalibrator::mse, WeightCalibrator::lsq}) {
      const Folder folder("learned");
      CalibratedRun c(learning(edges, weights), folder.path());
      const std::vector<float> before = edge_scales(c.model);
      const at::Tensor learned = weights == WeightCalibrator::lsq
                                     ? c.model.learned_scales().at("weights.scale").detach().clone()
                                     : at::Tensor();
      train_qat(c.run, c.model, false);
      const std::vector<float> after = edge_scales(c.model);
      for (size_t i = 0; i < after.size(); ++i) {
        EXPECT_EQ(after[i] != before[i], edges == EdgeScales::lsq) << i;
        EXPECT_GT(after[i], 0);
      }
      ASSERT_EQ(c.model.learned_scales().contains("weights.scale"), weights == WeightCalibrator::lsq);
      if (weights == WeightCalibrator::lsq) {
        const at::Tensor moved = c.model.learned_scales().at("weights.scale").detach();
        EXPECT_GT(moved.ne(learned).to(at::kFloat).mean().item<float>(), 0.9);
        EXPECT_TRUE(moved.gt(0).all().item<bool>());
      }
    }
  }
}

TEST(LearnedScalesTraining, TheirOwnRateMovesThem) {
  for (const double rate : {0.0, 1e-12}) {
    const Folder folder("learned_rate");
    Recipe recipe = learning();
    recipe.qat.scale_learning_rate = rate;
    CalibratedRun c(recipe, folder.path());
    const std::vector<float> before = edge_scales(c.model);
    train_qat(c.run, c.model, false);
    EXPECT_EQ(edge_scales(c.model) == before, rate > 0) << "a rate of nothing moves nothing, 0 is qat.learning_rate";
  }
}

/// Running statistics that are not those of any batch make the values of evaluation a hundred times as wide as those of
/// training. A scale does not learn that far; what the recipe itself says to learn begins as calibrated.
TEST(LearnedScalesTraining, ByDefaultBeginAsTrainingSeesTheValues) {
  for (const bool by_default : {true, false}) {
    const Folder folder("learned_start");
    Recipe recipe = learning(EdgeScales::lsq, WeightCalibrator::minmax);
    if (by_default) recipe.quant.scales.reset();
    recipe.qat.learning_rate = 1e-9;
    CalibratedRun c(recipe, folder.path());
    const std::vector<float> usual = edge_scales(c.model);  // the input's, bn1's, bn2's
    c.weights.at("bn1.running_var").detach().mul_(1e-4);
    calibrate(c.model, c.run);
    const std::vector<float> wide = edge_scales(c.model);
    ASSERT_GT(wide[1], 20 * usual[1]);
    train_qat(c.run, c.model, false);
    const std::vector<float> after = edge_scales(c.model);
    EXPECT_NEAR(after[0], usual[0], 0.1 * usual[0]);
    if (by_default) {
      EXPECT_LT(after[1], 3 * usual[1]);
    } else {
      EXPECT_NEAR(after[1], wide[1], 1e-3 * wide[1]);
    }
  }
}

/// Interrupted at every kind of place, with momentum, averages and scaler: the same bits at the end, in the engine's
/// file too.
TEST(LearnedScalesTraining, ResumeEndsAlikeAndLoadsAsItWas) {
  for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adamw}) {
    std::map<std::string, at::Tensor> ends[2];
    for (const int stop : {0, 5}) {
      const Folder folder("learned_resume");
      Recipe recipe = learning();
      recipe.qat.optimizer = optimizer;
      recipe.qat.ema = 0.9;
      recipe.qat.scale_learning_rate = 1e-4;
      CalibratedRun c(recipe, folder.path());
      int steps = 0;
      if (stop > 0) {
        EXPECT_THROW(train_qat(c.run, c.model, false, [&] { return ++steps == stop; }), Error);
        Weights weights = starting_weights(c.run);
        QuantizedModel resumed = make_quantized(c.run, weights);
        calibrate(resumed, c.run);
        train_qat(c.run, resumed, true);
        ends[1] = resumed.state();
        continue;
      }
      train_qat(c.run, c.model, false);
      ends[0] = c.model.state();
      save_quantized(c.model, c.run.directory.quantized());
      testing_trainers::expect_same_bits(load_quantized(c.run).state(), ends[0]);
      EXPECT_EQ(load_quantized(c.run).weight_scales(), c.model.weight_scales());
    }
    testing_trainers::expect_same_bits(ends[0], ends[1]);
  }
}

/// What is validated and deployed at the end are the averages, and they are not the last step's scales.
TEST(LearnedScalesTraining, EmaAveragesThem) {
  std::vector<float> ends[2];
  for (const double ema : {0.0, 0.9}) {
    const Folder folder("learned_ema");
    Recipe recipe = learning();
    recipe.qat.ema = ema;
    CalibratedRun c(recipe, folder.path());
    train_qat(c.run, c.model, false);
    ends[ema > 0] = edge_scales(c.model);
  }
  EXPECT_NE(ends[0], ends[1]);
  for (size_t i = 0; i < ends[0].size(); ++i) EXPECT_NEAR(ends[0][i] / ends[1][i], 1, 0.5);
}

/// Huge gradients, on purpose: a step changes a scale by a tenth of it, and never to less than the least scale of an
/// edge.
TEST(LearnedScalesTraining, AStepChangesAScaleByATenthAtMostAndNothingDecays) {
  for (const auto& [kind, name] : kOptimizers) {
    OptimizerRecipe recipe;
    recipe.optimizer = kind;
    recipe.weight_decay = 0.5;
    const Graph graph = testing_trainers::tiny_graph();
    const Weights weights = initial_weights(graph, 1);
    const at::Tensor scales = at::full({3}, 0.5f);
    scales[2] = 0x1p-64f;
    scales.requires_grad_(true);
    Optimizer optimizer(recipe, graph, weights, {{"edges.scale", scales}});
    const auto step = [&](const at::Tensor& gradient) {
      scales.mutable_grad() = gradient;
      optimizer.step({.weights = at::full({}, 0.1, at::kDouble), .scales = at::full({}, 10.0, at::kDouble)},
                     at::full({}, 0.0f));
    };
    step(at::zeros({3}));
    EXPECT_TRUE(scales.eq(at::tensor({0.5f, 0.5f, 0x1p-64f})).all().item<bool>()) << name << ": decayed";
    step(at::tensor({1e6f, -1.0f, 1e6f}));
    EXPECT_FLOAT_EQ(scales[0].item<float>(), 0.45f) << name;
    EXPECT_FLOAT_EQ(scales[1].item<float>(), 0.55f) << name;
    EXPECT_EQ(scales[2].item<float>(), 0x1p-64f) << name;
  }
}

/// Offsets go where their gradient says, and do not decay.
TEST(LearnedScalesTraining, OffsetsGoAnywhere) {
  OptimizerRecipe recipe;
  recipe.momentum = 0.5;
  recipe.nesterov = false;
  recipe.weight_decay = 0.5;
  const Graph graph = testing_trainers::tiny_graph();
  const Weights weights = initial_weights(graph, 1);
  const auto leaf = [](float value) { return at::full({2}, value).requires_grad_(true); };
  const at::Tensor offset = leaf(-3), scale = leaf(0.5f);
  const Weights learned{{"edges.offset", offset}, {"edges.scale", scale}};
  Optimizer optimizer(recipe, graph, weights, learned);
  const auto step = [&](float gradient, double rate) {
    for (const auto& [name, values] : learned) at::Tensor(values).mutable_grad() = at::full({2}, gradient);
    optimizer.step({.weights = at::full({}, 0.1, at::kDouble), .scales = at::full({}, rate, at::kDouble)},
                   at::full({}, 0.0f));
  };
  step(0, 1);
  EXPECT_EQ(offset[0].item<float>(), -3);
  EXPECT_EQ(scale[0].item<float>(), 0.5f);
  step(1e6f, 1);
  EXPECT_FLOAT_EQ(scale[0].item<float>(), 0.45f);  // a tenth at most
  EXPECT_EQ(offset[0].item<float>(), -3 - 1e6f);
}

/// LSQ+ in a training as recipes give it: offsets move, zero points are codes, and a stop changes no bit.
TEST(LearnedScalesTraining, OffsetsLearnAndResume) {
  std::map<std::string, at::Tensor> ends[2];
  for (const int stop : {0, 5}) {
    const Folder folder("learned_ranges");
    CalibratedRun c(learning(EdgeScales::lsq_plus), folder.path());
    const at::Tensor before = c.model.learned_scales().at("edges.offset").detach().clone();
    int steps = 0;
    if (stop > 0) {
      EXPECT_THROW(train_qat(c.run, c.model, false, [&] { return ++steps == stop; }), Error);
      QuantizedModel resumed = make_quantized(c.run, starting_weights(c.run));
      calibrate(resumed, c.run);
      train_qat(c.run, resumed, true);
      ends[1] = resumed.state();
      continue;
    }
    train_qat(c.run, c.model, false);
    EXPECT_FALSE(at::equal(c.model.learned_scales().at("edges.offset"), before));
    for (const QParams& q : c.model.edges()) {
      EXPECT_GE(q.zero_point, q.quant_min);
      EXPECT_LE(q.zero_point, q.quant_max);
    }
    ends[0] = c.model.state();
    save_quantized(c.model, c.run.directory.quantized());
    testing_trainers::expect_same_bits(load_quantized(c.run).state(), ends[0]);
  }
  testing_trainers::expect_same_bits(ends[0], ends[1]);
}

TEST(LearnedScalesTraining, WhatWasNeverCalibratedIsRefused) {
  const Folder folder("learned_none");
  const Recipe recipe = learning();
  auto run = open_run(recipe, {folder.path()});
  start_run_directory(run.directory, recipe, {});
  QuantizedModel model = make_quantized(run, starting_weights(run));
  const std::string message = message_of(ExitCode::usage, [&] { train_qat(run, model, false); });
  EXPECT_NE(message.find("learned scales begin as calibrated, but the network was never calibrated"), std::string::npos)
      << message;
}

TEST(LearnedScalesTraining, RecipesWithoutMeaningAreRefusedWithTheReason) {
  const auto refusal = [](const std::vector<std::string>& overrides) {
    return message_of(ExitCode::usage, [&] {
      parse_recipe("data: {format: synthetic}\nmodel: {name: small_cnn}\n", "r.yaml", overrides);
    });
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(refusal({"quant.scales=lsq"}), "quant.scales: lsq learns scales in QAT, but qat.epochs is 0");
  expect(refusal({"quant.weight_calibrator=lsq"}), "quant.weight_calibrator: lsq learns scales in QAT");
  expect(refusal({"quant.scales=observed"}), "quant.scales: observed follows ranges in QAT, but qat.epochs is 0");
  expect(refusal({"qat.epochs=1", "quant.weight_calibrator=lsq", "quant.weight_granularity=per_tensor"}),
         "lsq learns a scale for each channel, but quant.weight_granularity is per_tensor");
  expect(refusal({"qat.epochs=1", "qat.scale_learning_rate=0.1"}), "qat.scale_learning_rate: no scale learns");
  EXPECT_EQ(parse_recipe("data: {format: synthetic}\nmodel: {name: small_cnn}\n", "r.yaml",
                         {"qat.epochs=1", "quant.activation_bits=4", "qat.scale_learning_rate=0.1"})
                .qat.scale_learning_rate,
            0.1)
      << "auto is lsq below eight bits";
  expect(refusal({"qat.epochs=1", "quant.scales=lsqq"}), "quant.scales");
  expect(refusal({"quant.scales=lsq_plus"}), "quant.scales: lsq_plus learns scales in QAT, but qat.epochs is 0");
  expect(refusal({"qat.epochs=1", "quant.scales=lsq_plus", "quant.activation=symmetric_s8"}), "quant.scales: lsq_plus");
  expect(refusal({"qat.epochs=1", "quant.scales=lsq_plus", "quant.activation=unsigned_u8"}),
         "lsq_plus learns zero points, and quant.activation unsigned_u8 has none; set affine_u8, or lsq");
}

}  // namespace
}  // namespace octet
