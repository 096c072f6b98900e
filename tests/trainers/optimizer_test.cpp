// SPDX-License-Identifier: Apache-2.0
// The optimizers against an independent scalar loop over the formulas of trainers/loop/optimizer.h, in double.
#include "trainers/loop/optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "src/base/error.h"

namespace octet {
namespace {

/// conv (weight decays; its bias does not) and batch_norm (nothing decays).
Graph small_graph() {
  Graph graph;
  graph.nodes.push_back({.name = "input", .op = Op::input, .shape = {3, 8, 8}});
  Node conv{.name = "conv", .op = Op::conv2d, .inputs = {0}};
  conv.window = {.kernel_h = 3, .kernel_w = 3, .pad = even_padding(1, 1)};
  conv.out_channels = 5;
  conv.bias = true;
  graph.nodes.push_back(conv);
  graph.nodes.push_back({.name = "bn", .op = Op::batch_norm, .inputs = {1}});
  infer_shapes(graph);
  return graph;
}

/// Random weights, the convolution's in channels-last memory: the fused operators must not mix up memory orders.
Weights random_weights(const Graph& graph) {
  Weights weights;
  for (const ParameterSpec& spec : parameters(graph)) {
    at::Tensor tensor = at::randn(std::vector<int64_t>(spec.shape.begin(), spec.shape.end()));
    if (tensor.dim() == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
    weights[spec.name] = spec.trainable() ? tensor.set_requires_grad(true) : tensor;
  }
  return weights;
}

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kDouble).contiguous();
  return {plain.const_data_ptr<double>(), plain.const_data_ptr<double>() + plain.numel()};
}

struct Scalar {
  double p, first = 0, second = 0;
};

void scalar_step(Scalar& s, double g, double lr, bool decay, int t, const OptimizerRecipe& recipe) {
  const double wd = decay ? recipe.weight_decay : 0;
  if (recipe.optimizer == OptimizerKind::sgd) {
    g += wd * s.p;
    s.first = recipe.momentum * s.first + g;
    s.p -= lr * (recipe.nesterov ? g + recipe.momentum * s.first : s.first);
  } else {
    s.p *= 1 - lr * wd;
    s.first = recipe.beta1 * s.first + (1 - recipe.beta1) * g;
    s.second = recipe.beta2 * s.second + (1 - recipe.beta2) * g * g;
    const double mean = s.first / (1 - std::pow(recipe.beta1, t)), square = s.second / (1 - std::pow(recipe.beta2, t));
    s.p -= lr * mean / (std::sqrt(square) + 1e-8);
  }
}

void set_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  // As AccumulateGrad stores it: in the parameter's memory format.
  parameter.mutable_grad() = gradient.contiguous(parameter.suggest_memory_format());
}

void expect_matches_scalar_loop(const OptimizerRecipe& recipe) {
  const Graph graph = small_graph();
  const Weights weights = random_weights(graph);
  Optimizer optimizer(recipe, graph, weights);
  std::map<std::string, std::vector<Scalar>> expected;
  for (const auto& [name, tensor] : weights) {
    for (const double value : values(tensor)) expected[name].push_back({value});
  }
  for (int t = 1; t <= 5; ++t) {
    const double lr = 0.1 / t;
    for (const ParameterSpec& spec : parameters(graph)) {
      if (!spec.trainable()) continue;
      const at::Tensor gradient = at::randn(weights.at(spec.name).sizes());
      set_gradient(weights.at(spec.name), gradient);
      const std::vector<double> g = values(gradient);
      const bool decay = spec.name == "conv.weight";
      for (size_t i = 0; i < g.size(); ++i) scalar_step(expected[spec.name][i], g[i], lr, decay, t, recipe);
    }
    optimizer.step({.weights = at::full({}, lr, at::kDouble)}, at::full({}, 0.0f));
  }
  for (const auto& [name, tensor] : weights) {
    const std::vector<double> actual = values(tensor);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[name][i].p, 2e-6 * std::max(1.0, std::abs(expected[name][i].p))) << name << i;
    }
  }
}

TEST(Optimizer, SgdWithNesterovMatchesTheFormula) {
  OptimizerRecipe recipe;
  recipe.weight_decay = 0.05;
  expect_matches_scalar_loop(recipe);
}

TEST(Optimizer, SgdWithPlainMomentumMatchesTheFormula) {
  OptimizerRecipe recipe;
  recipe.nesterov = false;
  recipe.momentum = 0.7;
  recipe.weight_decay = 0.05;
  expect_matches_scalar_loop(recipe);
}

TEST(Optimizer, AdamWMatchesTheFormula) {
  OptimizerRecipe recipe;
  recipe.optimizer = OptimizerKind::adamw;
  recipe.beta2 = 0.95;
  recipe.weight_decay = 0.05;
  expect_matches_scalar_loop(recipe);
}

TEST(Optimizer, OnlyWeightsOfConvolutionsAndLinearsDecay) {
  using Kind = ParameterSpec::Kind;
  EXPECT_TRUE(decays(Kind::conv_weight));
  EXPECT_TRUE(decays(Kind::linear_weight));
  for (const Kind kind : {Kind::bias, Kind::bn_weight, Kind::bn_bias, Kind::bn_mean, Kind::bn_var, Kind::slope}) {
    EXPECT_FALSE(decays(kind));
  }
}

TEST(Optimizer, FoundInfChangesNothing) {
  for (const auto& [kind, name] : kOptimizers) {
    OptimizerRecipe recipe;
    recipe.optimizer = kind;
    const Graph graph = small_graph();
    const Weights weights = random_weights(graph);
    Optimizer optimizer(recipe, graph, weights);
    const at::Tensor before = weights.at("conv.weight").detach().clone();
    for (const auto& [parameter, tensor] : weights) {
      if (tensor.requires_grad()) set_gradient(tensor, at::full(tensor.sizes(), NAN));
    }
    optimizer.step({.weights = at::full({}, 0.1, at::kDouble)}, at::full({}, 1.0f));
    EXPECT_TRUE(weights.at("conv.weight").equal(before)) << name;
    for (const auto& [key, state] : optimizer.state()) EXPECT_TRUE(state.eq(0).all().item<bool>()) << name << key;

    for (const auto& [parameter, tensor] : weights) {
      if (tensor.requires_grad()) set_gradient(tensor, at::full(tensor.sizes(), 1.0f));
    }
    optimizer.step({.weights = at::full({}, 0.1, at::kDouble)}, at::full({}, 0.0f));
    EXPECT_FALSE(weights.at("conv.weight").equal(before)) << name;
  }
}

TEST(Optimizer, StateNames) {
  const Graph graph = small_graph();
  const Weights weights = random_weights(graph);
  OptimizerRecipe recipe;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : Optimizer(recipe, graph, weights).state()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"momentum.bn.bias", "momentum.bn.weight", "momentum.conv.bias",
                                             "momentum.conv.weight"}));
}

}  // namespace
}  // namespace octet
