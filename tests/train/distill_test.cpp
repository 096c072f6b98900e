// SPDX-License-Identifier: Apache-2.0
// The float network is distilled into the quantized one: logits get nearer, the model finds codes and scales again, and
// the steps' gradients are those of the formulas.
#include "src/train/repair/learned_codes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/quant/equalize.h"
#include "src/train/repair/steps.h"
#include "tests/train/networks.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

std::vector<test::RoundedCase> cases() {
  QuantSpec tensor = uniform_bits(8, 3), full = uniform_bits(8, 3);
  tensor.weight_granularity = Granularity::per_tensor;
  full.weight_range = WeightRange::full;
  return {{test::residual_network("relu"), uniform_bits(8, 3), WeightCalibrator::mse},
          {test::residual_network("silu"), tensor, WeightCalibrator::minmax},
          {build_model(test::other_operators()), full, WeightCalibrator::mse}};
}

Weights copy_of(const Weights& weights) {
  Weights copy = weights;
  for (auto& [name, tensor] : copy) tensor = tensor.detach().clone();
  return copy;
}

struct Student {
  explicit Student(const test::RoundedCase& c)
      : floats(test::random_weights(c.graph, 3)),
        model(test::calibrated(c.graph, copy_of(floats), c.quant, CalibrationMethod::minmax, {.weights = c.weights})),
        x(test::input_images(c.graph.nodes[0].shape, 32)) {
    reconstruct(model, x, /*blocks=*/false, {.steps = 50, .batch_size = 8}, [](const Reconstructed&) {});
  }
  Distilled learn(const DistillPlan& plan) {
    int64_t batch = 0;
    return distill(
        model, floats, [&] { return x.narrow(0, 8 * (batch++ % 4), 8); }, plan);
  }
  double loss() {
    const c10::NoGradGuard no_grad;
    return distillation_loss(model.forward(x, {}), walk(model.prepared().graph, floats, x, {}), 1).item<double>();
  }
  Weights floats;
  QuantizedModel model;
  at::Tensor x;
};

TEST(Distill, TheNetworkComesNearerAndStaysOnAGrid) {
  for (const test::RoundedCase& c : cases()) {
    Student student(c);
    const double before = student.loss();
    const FloatParams scales = student.model.weight_scales();
    const Weights rounded = copy_of(student.model.weights());
    const auto codes = test::codes(student.model);
    const Distilled result = student.learn({.steps = 200, .rate = 1e-2, .temperature = 1});
    EXPECT_LT(student.loss(), 0.7 * before);
    EXPECT_LT(result.last, result.first);
    const auto after = test::codes(student.model);
    int64_t moved = 0, weights = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      for (size_t w = 0; w < codes[i].size(); ++w) moved += codes[i][w] != after[i][w];
      if (i + 1 < codes.size()) weights += static_cast<int64_t>(codes[i].size());
    }
    EXPECT_EQ(codes.back(), after.back());
    EXPECT_EQ(result.moved, moved);
    EXPECT_EQ(result.weights, weights);
    EXPECT_GT(moved, 0);
    const std::vector<Node>& nodes = student.model.prepared().graph.nodes;
    const auto is_layer = [](const Node& node) { return has_weight(node.op); };
    const std::string last = std::find_if(nodes.rbegin(), nodes.rend(), is_layer)->name;
    for (const auto& [name, of_layer] : student.model.weight_scales()) {
      EXPECT_EQ(of_layer == scales.at(name), name == last) << name;
      const at::Tensor& weight = student.model.weights().at(name + ".weight");
      for (size_t k = 0; k < of_layer.size(); ++k) {  // off the grid by no more than rounding
        const at::Tensor steps = weight[static_cast<int64_t>(k)] / of_layer[k];
        EXPECT_LE((steps - steps.round()).abs().max().item<float>(), 1e-4) << name;
      }
    }
    for (const Node& node : nodes) {
      if (!is_layer(node) || bias_name(node).empty()) continue;
      const at::Tensor& bias = student.model.weights().at(bias_name(node));
      EXPECT_EQ(bias.equal(rounded.at(bias_name(node))), node.name == last) << node.name;
    }
  }
}

std::string refusal(const Graph& graph) {
  try {
    require_teachable(graph);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(Distill, WhatCannotBeTaughtIsRefused) {
  Graph graph = test::residual_network("relu");
  EXPECT_EQ(refusal(graph), "");
  graph.outputs.push_back(2);
  EXPECT_NE(refusal(graph).find("this network has 2; leave it out"), std::string::npos) << refusal(graph);
  ModelSpec spec = test::family("graph", 8);
  spec.classes = 4;
  spec.graph = {{"f", "flatten", {}, {}}, {"l", "linear", {}, {{"out_channels", 4}}}};
  const Graph single = build_model(spec);
  EXPECT_NE(refusal(single).find("this network has no other; leave it out"), std::string::npos) << refusal(single);
}

TEST(Distill, RatesOfZeroChangeNothingAndTheSameImagesGiveTheSameBits) {
  const test::RoundedCase c = cases()[0];
  Student still(c), one(c), two(c);
  const Weights before = copy_of(still.model.weights());
  const double loss = still.loss();
  EXPECT_EQ(still.learn({.steps = 5, .rate = 0}).moved, 0);
  EXPECT_EQ(still.loss(), loss);
  one.learn({.steps = 20});
  two.learn({.steps = 20});
  for (const auto& [name, tensor] : one.model.weights())
    EXPECT_TRUE(tensor.equal(two.model.weights().at(name))) << name;
}

/// A student that does not learn has the loss of all images at the beginning and at the end; each tenth sees them
/// all.
TEST(Distill, TheLossesOfTheFirstAndTheLastTenthAreTold) {
  Student still(cases()[0]);
  const double loss = still.loss();
  const Distilled result = still.learn({.steps = 40, .rate = 0, .temperature = 1});
  EXPECT_GT(loss, 0);
  EXPECT_NEAR(result.first / loss, 1, 1e-3);
  EXPECT_NEAR(result.last / loss, 1, 1e-3);
}

/// The gradient written by hand is that of scale * e^gain * round(latent), passed straight through the rounding; codes
/// that carry the scale stay.
TEST(MovingCodes, GradientsAreThoseOfTheFormula) {
  at::manual_seed(1);
  const c10::NoGradGuard no_grad;
  const WeightCodes codes = weight_codes(3, WeightRange::symmetric);
  const std::vector<float> scale = {0.5f, 0.25f, 2.0f};
  const at::Tensor grid = by_row(at::tensor(scale), at::randn({3, 4, 2, 2}));
  const at::Tensor steps = (at::randn({3, 4, 2, 2}) * 1.5).clamp(-3, 3);
  steps.select(1, 0).fill_(3);
  for (const bool per_tensor : {false, true}) {
    const MovingCodes moving(grid * steps.round(), grid * steps, scale, codes, per_tensor);
    EXPECT_TRUE(moving.weight().equal(grid * steps.round()));
    EXPECT_LE((moving.latent() - moving.latent().round()).abs().max().item<float>(), 0.4501f);
    moving.gain().fill_(0.3);
    const at::Tensor by_weight = at::randn({3, 4, 2, 2});
    const MovingCodes::Gradients by_hand = moving.gradients(by_weight, moving.weight());

    const at::Tensor latent = moving.latent().clone().requires_grad_(true),
                     gain = moving.gain().clone().requires_grad_(true);
    std::vector<at::Tensor> wanted;
    {
      const c10::AutoGradMode on(true);
      const at::Tensor straight = latent + (latent.round() - latent).detach();
      const at::Tensor weight = grid * by_row(gain.exp(), latent) * straight;
      wanted = torch::autograd::grad({(weight * by_weight).sum()}, {latent, gain});
    }
    const at::Tensor free = moving.latent().round().abs().lt(3);
    EXPECT_TRUE(at::allclose(by_hand.latent, wanted[0] * free, 1e-5, 1e-7));
    EXPECT_TRUE(at::allclose(by_hand.gain, wanted[1], 1e-5, 1e-6));
  }
}

TEST(MovingCodes, LatentsStayWhereTheyRoundToACode) {
  const c10::NoGradGuard no_grad;
  const WeightCodes codes = weight_codes(3, WeightRange::full);
  const at::Tensor weight = at::tensor({1.0f, -1.5f, 0.5f, -2.0f}).view({1, 4});
  MovingCodes moving(weight, weight, {0.5f}, codes, /*per_tensor=*/false);
  moving.latent().mul_(4);
  moving.hold();
  EXPECT_TRUE(moving.weight().equal(at::tensor({1.5f, -2.0f, 1.5f, -2.0f}).view({1, 4}))) << moving.weight();
}

}  // namespace
}  // namespace octet
