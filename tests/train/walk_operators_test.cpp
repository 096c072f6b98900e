// SPDX-License-Identifier: Apache-2.0
// Single operators as the walk computes them, against LibTorch's own or by hand.
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
  const at::Tensor larger = at::randn({2, 20, 6, 8});  // training may change the size
  EXPECT_TRUE(at::allclose(walk(graph, {}, larger, {}), attention_by_hand(larger, 0.375), 1e-5, 1e-6));
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

}  // namespace
}  // namespace octet
