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

namespace octet {
namespace {

NodeSpec node(const std::string& name, const std::string& op, std::map<std::string, double> attributes = {},
              std::vector<std::string> inputs = {}) {
  return {name, op, std::move(inputs), std::move(attributes)};
}

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
      node("gate", "sigmoid", {}, {"avg"}),
      node("hard_gate", "hard_sigmoid", {}, {"avg"}),
      node("mixed", "concat", {}, {"f5", "gate", "hard_gate"}),
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

/// Padding is 0 for convolutions and averages, and never the maximum.
TEST(Walk, PaddingDiffersFromSideToSide) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {2, 5, 6};
  const std::map<std::string, double> window = {{"kernel", 4}, {"stride", 1}, {"pad_top", 1}, {"pad_right", 2}};
  std::map<std::string, double> conv = window;
  conv["out_channels"] = 3;
  spec.graph = {node("c", "conv2d", conv, {"input"}), node("m", "max_pool", window, {"input"}),
                node("a", "avg_pool", window, {"input"})};
  at::manual_seed(4);
  const at::Tensor x = -at::rand({2, 2, 5, 6}) - 1;
  const auto padded = [&](double value) { return at::constant_pad_nd(x, {0, 2, 1, 0}, value); };
  for (const char* output : {"c", "m", "a"}) {
    spec.outputs = {output};
    const Graph graph = build_model(spec);
    const Weights weights = initial_weights(graph, 7);
    const at::Tensor expected = *output == 'c'   ? at::conv2d(padded(0), weights.at("c.weight"), weights.at("c.bias"))
                                : *output == 'm' ? at::max_pool2d(padded(-9), {4, 4}, {1, 1})
                                                 : at::avg_pool2d(padded(0), {4, 4}, {1, 1});
    EXPECT_EQ(expected.size(2), 3);
    EXPECT_EQ(expected.size(3), 5);
    EXPECT_TRUE(at::allclose(walk(graph, weights, x, {}), expected.flatten(1), 1e-5, 1e-6)) << output;
  }
}

TEST(Walk, BatchNormsHaveTheirOwnEpsilon) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {3, 4, 4};
  spec.graph = {node("c", "conv2d", {{"out_channels", 3}, {"kernel", 1}}), node("b", "batch_norm", {{"epsilon", 0.5}})};
  spec.outputs = {"b"};
  const Graph graph = build_model(spec);
  const Weights w = initial_weights(graph, 7);
  const at::Tensor x = at::rand({2, 3, 4, 4});
  const at::Tensor expected = at::conv2d(x, w.at("c.weight"), w.at("c.bias")) / std::sqrt(1.5);  // of a fresh BatchNorm
  EXPECT_TRUE(at::allclose(walk(graph, w, x, {}), expected.flatten(1), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(walk(fuse(graph), w, x, {}), expected.flatten(1), 1e-5, 1e-6));
}

TEST(Walk, SliceAndResizeCopyValues) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {4, 3, 2};
  spec.graph = {node("s", "slice", {{"first_channel", 1}, {"out_channels", 2}}),
                node("r", "resize", {{"factor", 49}})};  // 1 / 49 * 49 is below 1 in float
  spec.outputs = {"r"};
  const Graph graph = build_model(spec);
  const at::Tensor x = at::arange(48).to(at::kFloat).view({2, 4, 3, 2});
  const at::Tensor expected =
      x.narrow(1, 1, 2).repeat_interleave(49, 2).repeat_interleave(49, 3).contiguous().flatten(1);
  EXPECT_TRUE(at::equal(walk(graph, {}, x, {}), expected));
  EXPECT_TRUE(at::equal(walk(graph, {}, x.contiguous(at::MemoryFormat::ChannelsLast), {}), expected));
}

Graph bilinear(int factor, const Shape& input) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = input;
  spec.graph = {node("b", "resize_bilinear", {{"factor", factor}})};
  spec.outputs = {"b"};
  return build_model(spec);
}

/// Checks values and gradients against LibTorch's.
TEST(Walk, ResizeBilinearIsLibTorchs) {
  at::manual_seed(4);
  for (const int factor : {1, 2, 3, 4, 7}) {
    for (const Shape& shape : {Shape{3, 5, 4}, Shape{2, 1, 6}, Shape{1, 1, 1}}) {
      const Graph graph = bilinear(factor, shape);
      const at::Tensor x = at::randn({2, shape.c, shape.h, shape.w}).requires_grad_();
      const at::Tensor expected = at::upsample_bilinear2d(x, {shape.h * factor, shape.w * factor}, false);
      const at::Tensor y = walk(graph, {}, x, {});
      EXPECT_TRUE(at::allclose(y, expected.flatten(1), 1e-5, 1e-6)) << factor;
      EXPECT_TRUE(at::equal(walk(graph, {}, x.contiguous(at::MemoryFormat::ChannelsLast), {}), y)) << factor;
      const at::Tensor from_above = at::randn(expected.sizes());
      expected.backward(from_above);
      const at::Tensor gradient = x.grad().clone();
      x.mutable_grad().reset();
      y.backward(from_above.flatten(1));
      EXPECT_TRUE(at::allclose(x.grad(), gradient, 1e-5, 1e-5)) << factor;
    }
  }
}

/// Weights of 0 read nothing: infinity stays where straight lines to it begin.
TEST(Walk, InfinityGoesNoFurtherThanItsNeighbours) {
  at::Tensor x = at::zeros({1, 1, 1, 5});
  x[0][0][0][2] = std::numeric_limits<float>::infinity();
  const at::Tensor y = walk(bilinear(3, {1, 1, 5}), {}, x, {}).view({3, 15});
  EXPECT_TRUE(at::equal(y.isinf().sum(0), at::tensor({0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0})));
  EXPECT_FALSE(y.isnan().any().item<bool>());
}

/// Queries, keys and values of two heads, one after the other in the channels of x, as multi-head attention mixes them.
at::Tensor attention_by_hand(const at::Tensor& x, double scale) {
  const auto heads = [&](int64_t first, int64_t channels) {  // [N, 2, channels of a head, pixels]
    return x.narrow(1, first, channels).reshape({x.size(0), 2, channels / 2, x.size(2) * x.size(3)});
  };
  const at::Tensor shares = (heads(0, 6).transpose(2, 3).matmul(heads(6, 6)) * scale).softmax(-1);
  return heads(12, 8).matmul(shares.transpose(2, 3)).reshape({x.size(0), -1});
}

/// Values and gradients of x and of the slopes, against max(x, 0) + slope * min(x, 0).
TEST(Walk, PreluAndItsGradients) {
  for (const int groups : {1, 2, 6}) {
    ModelSpec spec;
    spec.name = "graph";
    spec.input = {6, 3, 4};
    spec.graph = {node("p", "prelu", {{"groups", groups}})};
    spec.outputs = {"p"};
    const Graph graph = build_model(spec);
    Weights weights = initial_weights(graph, 1);
    at::Tensor& slopes = weights.at("p.weight");
    ASSERT_EQ(slopes.sizes().vec(), std::vector<int64_t>{groups});
    EXPECT_TRUE(slopes.requires_grad() && at::equal(slopes.detach(), at::full({groups}, 0.25)));
    at::manual_seed(3);
    slopes = at::randn({groups}).requires_grad_();
    const at::Tensor x = at::randn({2, 6, 3, 4}).requires_grad_();
    const at::Tensor each = slopes.repeat_interleave(6 / groups).view({1, 6, 1, 1});
    const at::Tensor expected = (x.clamp_min(0) + each * x.clamp_max(0)).flatten(1), y = walk(graph, weights, x, {});
    EXPECT_TRUE(at::allclose(y, expected, 1e-6, 1e-7)) << groups;
    EXPECT_TRUE(at::equal(walk(graph, weights, x.contiguous(at::MemoryFormat::ChannelsLast), {}), y));
    const at::Tensor from_above = at::randn(expected.sizes());
    expected.backward(from_above);
    const at::Tensor of_x = x.grad().clone(), of_slopes = slopes.grad().clone();
    x.mutable_grad().reset();
    slopes.mutable_grad().reset();
    y.backward(from_above);
    EXPECT_TRUE(at::allclose(x.grad(), of_x, 1e-5, 1e-6)) << groups;
    EXPECT_TRUE(at::allclose(slopes.grad(), of_slopes, 1e-5, 1e-6)) << groups;
    EXPECT_GT(of_slopes.abs().min().item<float>(), 0);
  }
}

TEST(Walk, AttentionAndItsGradients) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {20, 3, 4};
  spec.graph = {node("q", "slice", {{"first_channel", 0}, {"out_channels", 6}}, {"input"}),
                node("k", "slice", {{"first_channel", 6}, {"out_channels", 6}}, {"input"}),
                node("v", "slice", {{"first_channel", 12}, {"out_channels", 8}}, {"input"}),
                node("scores", "matmul", {{"groups", 2}, {"transposed", 1}, {"scale", 0.375}}, {"q", "k"}),
                node("shares", "softmax", {{"groups", 2}}),
                node("mixed", "matmul", {{"groups", 2}}, {"shares", "v"})};
  spec.outputs = {"mixed"};
  const Graph graph = build_model(spec);
  at::manual_seed(8);
  const at::Tensor x = at::randn({2, 20, 3, 4}).requires_grad_();
  const at::Tensor expected = attention_by_hand(x, 0.375), y = walk(graph, {}, x, {});
  EXPECT_TRUE(at::allclose(y, expected, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(walk(graph, {}, x.contiguous(at::MemoryFormat::ChannelsLast), {}), y, 1e-5, 1e-6));
  const at::Tensor from_above = at::randn(expected.sizes());
  expected.backward(from_above);
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad().reset();
  y.backward(from_above);
  EXPECT_GT(gradient.narrow(1, 0, 12).abs().max().item<float>(), 0.01);
  EXPECT_TRUE(at::allclose(x.grad(), gradient, 1e-4, 1e-5));
}

/// The relu6 after a softmax does not overwrite what the softmax's backward pass needs.
TEST(Walk, AnActivationLeavesTheSoftmaxBefore) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {4, 2, 2};
  spec.graph = {node("s", "softmax"), node("r", "relu6")};
  spec.outputs = {"r"};
  const Graph graph = fuse(build_model(spec));
  ASSERT_EQ(graph.nodes.size(), 2u);
  at::manual_seed(9);
  const at::Tensor x = at::randn({2, 4, 2, 2}).requires_grad_();
  const at::Tensor weight = at::randn({2, 16});
  walk(graph, {}, x, {}).mul(weight).sum().backward();
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad().reset();
  at::softmax(x, 1).flatten(1).mul(weight).sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), gradient, 1e-5, 1e-6));
}

TEST(Walk, ChannelsAreShuffledAndBecomePixels) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {12, 3, 2};
  const at::Tensor x = at::arange(144).to(at::kFloat).view({2, 12, 3, 2});
  const auto value_of = [&](const NodeSpec& last) {
    spec.graph = {last};
    spec.outputs = {last.name};
    const Graph graph = build_model(spec);
    const at::Tensor y = walk(graph, {}, x, {});
    EXPECT_TRUE(at::equal(walk(graph, {}, x.contiguous(at::MemoryFormat::ChannelsLast), {}), y));
    return y;
  };
  EXPECT_TRUE(at::equal(value_of(node("s", "channel_shuffle", {{"groups", 3}})), at::channel_shuffle(x, 3).flatten(1)));
  // PyTorch's pixel_shuffle takes the channels of one output channel from neighbours.
  const at::Tensor neighbours = x.view({2, 4, 3, 3, 2}).transpose(1, 2).reshape({2, 12, 3, 2});
  EXPECT_TRUE(
      at::equal(value_of(node("d", "depth_to_space", {{"factor", 2}})), at::pixel_shuffle(neighbours, 2).flatten(1)));
}

/// A transposed convolution whose kernel is its stride: a 1x1 convolution, and its channels become pixels.
TEST(Walk, ATransposedConvolutionIsAConvolutionAndDepthToSpace) {
  ModelSpec spec;
  spec.name = "graph";
  spec.input = {5, 4, 3};
  spec.graph = {node("c", "conv2d", {{"out_channels", 12}, {"kernel", 1}}),
                node("up", "depth_to_space", {{"factor", 2}})};
  spec.outputs = {"up"};
  const Graph graph = build_model(spec);
  Weights weights = initial_weights(graph, 3);
  at::manual_seed(6);
  const at::Tensor w = at::rand({5, 3, 2, 2}) - 0.5, bias = at::rand({3}), x = at::rand({2, 5, 4, 3});
  weights["c.weight"] = w.permute({2, 3, 1, 0}).reshape({12, 5, 1, 1});
  weights["c.bias"] = bias.repeat({4});
  EXPECT_TRUE(at::allclose(walk(graph, weights, x, {}), at::conv_transpose2d(x, w, bias, 2).flatten(1), 1e-5, 1e-6));
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
