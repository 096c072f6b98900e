// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "src/net/zoo.h"
#include "src/quant/plan.h"
#include "src/train/model/model.h"
#include "tests/train/node.h"

namespace octet {
namespace {

using test::node;

/// Returns a network with every operator once.
Graph all_operators() {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {3, 9, 10};
  spec.classes = 5;
  spec.graph = {
      node("stem", "conv2d", {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}, {"bias", 0}}, {"input"}),
      node("bn", "batch_norm", {{"epsilon", 0.125}}),
      node("act", "relu"),
      node("deep", "conv2d",
           {{"out_channels", 8}, {"kernel", 3}, {"pad", 2}, {"dilation", 2}, {"groups", 8}, {"bias", 1}}),
      node("act6", "relu6"),
      node("sum", "add", {}, {"act", "act6"}),
      node("half", "conv2d", {{"out_channels", 6}, {"kernel", 3}, {"stride", 2}, {"pad", 1}, {"groups", 2}}),
      node("short", "subsample_pad", {{"stride", 2}, {"out_channels", 12}}, {"sum"}),
      node("cat", "concat", {}, {"half", "short"}),
      node("max", "max_pool", {{"kernel", 3}, {"stride", 1}, {"pad", 1}}),
      node("avg", "avg_pool", {{"kernel", 2}, {"stride", 2}, {"pad", 1}}),
      node("f1", "silu"),
      node("f2", "hard_swish"),
      node("f3", "leaky_relu", {{"slope", 0.25}}),
      node("f4", "gelu"),
      node("f5", "tanh"),
      node("f6", "mish"),
      node("f7", "elu"),
      node("f8", "softplus"),
      node("gate", "sigmoid", {}, {"avg"}),
      node("hard_gate", "hard_sigmoid", {}, {"avg"}),
      node("mixed", "concat", {}, {"f8", "gate", "hard_gate"}),
      node("gap", "global_avg_pool"),
      node("scaled", "mul", {}, {"mixed", "gap"}),
      node("product", "mul", {}, {"scaled", "mixed"}),
      node("drop", "dropout", {{"dropout", 0.5}}),
      node("flat", "flatten"),
      node("fc1", "linear", {{"out_channels", 7}}),
      node("fc", "linear", {{"out_channels", 5}}),
  };
  return build_model(spec);
}

at::Tensor by_hand(const Weights& w, const at::Tensor& x, bool training) {
  at::Tensor stem = at::conv2d(x, w.at("stem.weight"), {}, {1, 1}, {1, 1});
  stem = at::batch_norm(stem, w.at("bn.weight"), w.at("bn.bias"), w.at("bn.running_mean"), w.at("bn.running_var"),
                        training, 0.1, 0.125, false);
  const at::Tensor act = at::relu(stem);
  const at::Tensor act6 =
      at::clamp(at::conv2d(act, w.at("deep.weight"), w.at("deep.bias"), {1, 1}, {2, 2}, {2, 2}, 8), 0, 6);
  const at::Tensor sum = act + act6;
  const auto half_bias = w.count("half.bias") ? c10::optional<at::Tensor>(w.at("half.bias")) : c10::nullopt;
  const at::Tensor half = at::conv2d(sum, w.at("half.weight"), half_bias, {2, 2}, {1, 1}, {1, 1}, 2);
  at::Tensor padded = at::zeros({x.size(0), 12, 5, 5});
  padded.slice(1, 2, 10).copy_(sum.slice(2, 0, {}, 2).slice(3, 0, {}, 2));
  const at::Tensor max = at::max_pool2d(at::cat({half, padded}, 1), {3, 3}, {1, 1}, {1, 1});
  const at::Tensor avg = at::avg_pool2d(max, {2, 2}, {2, 2}, {1, 1});
  at::Tensor f = avg / (1 + at::exp(-avg));
  f = f * at::clamp(f + 3, 0, 6) / 6;
  f = at::where(f < 0, f * 0.25, f);
  f = f / 2 * (1 + at::erf(f / std::sqrt(2.0)));
  f = (at::exp(2 * f) - 1) / (at::exp(2 * f) + 1);
  f = f * at::tanh(at::log(1 + at::exp(f)));
  f = at::where(f < 0, at::exp(f) - 1, f);
  f = at::log(1 + at::exp(f));
  const at::Tensor mixed = at::cat({f, 1 / (1 + at::exp(-avg)), at::clamp(avg + 3, 0, 6) / 6}, 1);
  const at::Tensor product = mixed * mixed.mean({2, 3}, true) * mixed;
  const at::Tensor flat = product.contiguous().view({x.size(0), -1});
  const at::Tensor fc1 = at::addmm(w.at("fc1.bias"), flat, w.at("fc1.weight").t());
  return at::addmm(w.at("fc.bias"), fc1, w.at("fc.weight").t());
}

void randomize_batch_norm(Weights& weights) {
  const c10::NoGradGuard no_grad;
  for (auto& [name, t] : weights) {
    if (name.ends_with("running_mean") || (t.dim() == 1 && name.ends_with(".bias"))) t.normal_(0, 0.5);
    if (name.ends_with("running_var")) t.uniform_(0.5, 2);
    if (t.dim() == 1 && name.ends_with(".weight")) t.normal_(0.5, 1);
  }
}

TEST(Walk, EveryOperatorAsByHand) {
  at::manual_seed(3);
  const Graph graph = all_operators();
  Weights weights = initial_weights(graph, 7);
  randomize_batch_norm(weights);
  const at::Tensor x = at::randn({4, 3, 9, 10});
  const at::Tensor expected = by_hand(weights, x, false);
  ASSERT_GT(expected.abs().max().item<float>(), 0.01f);
  EXPECT_TRUE(at::allclose(walk(graph, weights, x, {}), expected, 1e-5, 1e-5));
  EXPECT_TRUE(
      at::allclose(walk(graph, weights, x.contiguous(at::MemoryFormat::ChannelsLast), {}), expected, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(walk(fuse(graph), weights, x, {}), expected, 1e-5, 1e-5));
}

TEST(Walk, BatchNormTrainingUsesAndMovesStatistics) {
  at::manual_seed(3);
  const Graph graph = all_operators();
  Weights weights = initial_weights(graph, 7);
  const at::Tensor x = at::randn({4, 3, 9, 10}) + 1;
  Weights other = initial_weights(graph, 7);
  const at::Tensor expected = by_hand(other, x, true);
  EXPECT_TRUE(at::allclose(walk(graph, weights, x, {.batch_norm_training = true}), expected, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(weights.at("bn.running_mean"), other.at("bn.running_mean")));
  EXPECT_GT(weights.at("bn.running_mean").abs().max().item<float>(), 0);
  const at::Tensor before = weights.at("bn.running_mean").clone();
  walk(graph, weights, x, {});
  EXPECT_TRUE(at::equal(before, weights.at("bn.running_mean")));
}

TEST(Walk, GradientsOfFusedAndUnfusedAgree) {
  for (const char* model : {"resnet8", "mobilenet_v2", "squeezenet1_1"}) {
    ModelSpec spec;
    spec.name = model;
    spec.input = {3, 32, 32};  // small: this is about the graph
    spec.shortcut = 'A';
    spec.width = 0.35;
    const Graph graph = build_model(spec);
    at::manual_seed(5);
    const at::Tensor x = at::randn({2, 3, 32, 32});
    std::vector<Weights> sides;
    for (const Graph& g : {graph, fuse(graph)}) {
      sides.push_back(initial_weights(graph, 1));
      walk(g, sides.back(), x, {.batch_norm_training = true}).square().sum().backward();
    }
    for (const auto& [name, tensor] : sides[0]) {
      if (!tensor.requires_grad()) continue;
      ASSERT_TRUE(tensor.grad().defined()) << model << " " << name;
      EXPECT_TRUE(at::allclose(tensor.grad(), sides[1].at(name).grad(), 1e-3, 1e-4)) << model << " " << name;
    }
  }
}

TEST(Walk, HooksSeeAndReplace) {
  const Graph graph = all_operators();
  const Weights weights = initial_weights(graph, 7);
  const at::Tensor x = at::randn({2, 3, 9, 10});
  std::vector<int> seen;
  WalkHooks hooks;
  hooks.output = [&](int n, at::Tensor y) {
    seen.push_back(n);
    const Shape& shape = graph.nodes[n].shape;
    EXPECT_EQ(y.sizes(), (std::vector<int64_t>{2, shape.c, shape.h, shape.w})) << graph.nodes[n].name;
    return y;
  };
  hooks.parameters = [&](int n, const LayerParameters& own) {
    return graph.nodes[n].name == "fc" ? LayerParameters{at::zeros_like(own.weight), own.bias} : own;
  };
  const at::Tensor logits = walk(graph, weights, x, {}, hooks);
  EXPECT_EQ(seen.size(), graph.nodes.size());
  EXPECT_TRUE(at::equal(logits, weights.at("fc.bias").expand({2, 5})));
}

/// Identities and views are other nodes' memory; a pool's maxima and a slice are not, though codes pass through both.
TEST(Walk, WhatIsOwnedIsNobodyElsesMemory) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {4, 6, 6};
  spec.graph = {node("pool", "max_pool", {{"kernel", 2}, {"stride", 2}}), node("drop", "dropout", {{"dropout", 0.5}}),
                node("part", "slice", {{"first_channel", 1}, {"out_channels", 2}}),
                node("sum", "add", {}, {"part", "part"}), node("flat", "flatten")};
  spec.outputs = {"flat"};
  const Graph graph = build_model(spec);
  const at::Tensor x = at::rand({2, 4, 6, 6});
  std::vector<at::Tensor> seen = {x};
  std::map<std::string, bool> owned;
  WalkHooks hooks;
  hooks.finish = [&](int n, const Unfinished& y) {
    owned[graph.nodes[n].name] = y.owned;
    for (const at::Tensor& other : seen) EXPECT_FALSE(y.owned && y.value.is_alias_of(other)) << graph.nodes[n].name;
    seen.push_back(y.value);
    return y.value;
  };
  walk(graph, {}, x, {}, hooks);
  EXPECT_EQ(owned, (std::map<std::string, bool>{
                       {"pool", true}, {"drop", false}, {"part", true}, {"sum", true}, {"flat", false}}));
}

TEST(Walk, NamesWhereNonFiniteBegins) {
  const Graph graph = all_operators();
  Weights weights = initial_weights(graph, 7);
  const at::Tensor x = at::randn({2, 3, 9, 10});
  EXPECT_EQ(first_non_finite(graph, weights, x), "");
  at::Tensor bad = x.clone();
  bad[0][0][0][0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_non_finite(graph, weights, bad), "node 'input'");
  {
    const c10::NoGradGuard no_grad;
    weights.at("half.weight").fill_(3e38f);
  }
  EXPECT_EQ(first_non_finite(graph, weights, x), "node 'half'");
  weights.at("half.weight").detach()[0][0][0][0] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_non_finite(graph, weights, x), "node 'half', its weights");
}

}  // namespace
}  // namespace octet
