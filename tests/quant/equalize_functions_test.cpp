// SPDX-License-Identifier: Apache-2.0
// A scale for each channel around a function keeps what the network computes, and gives all channels one range.
#include "src/quant/equalize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "src/net/zoo.h"
#include "src/quant/plan.h"
#include "tests/quant/walks.h"

namespace octet {
namespace {

using testing::conv_of;
using testing::graph_of;
using testing::Image;
using testing::node_of;
using testing::random_params;
using testing::walk_float;

constexpr int kSteps = 255, kImages = 4;

/// Readers that are depthwise, of groups, dense and linear; one function that a pool reads, too.
Graph two_layers() {
  return fuse(graph_of({conv_of("expand", 12, 1, 1, 0),
                        node_of("bn", "batch_norm"),
                        node_of("f1", "silu"),
                        conv_of("depthwise", 12, 3, 12),
                        node_of("f2", "hard_swish"),
                        conv_of("grouped", 8, 3, 2),
                        node_of("f3", "gelu"),
                        conv_of("narrow", 6),
                        node_of("f4", "silu"),
                        node_of("gap", "global_avg_pool"),
                        conv_of("last", 9),
                        node_of("f5", "silu"),
                        {"fc", "linear", {}, {{"out_channels", 5}, {"bias", 1}}}}));
}

/// Channels of very different ranges.
FloatParams uneven_params(const Graph& graph) {
  FloatParams params = random_params(graph, 3);
  for (const Node& node : graph.nodes) {
    if (!has_weight(node.op)) continue;
    std::vector<float>& rows = params.at((node.batch_norm.empty() ? node.name : node.batch_norm) + ".weight");
    const size_t row = rows.size() / node.out_channels;
    for (size_t i = 0; i < rows.size(); ++i) rows[i] *= std::exp2(static_cast<float>(i / row % 5) - 3);
  }
  return params;
}

std::vector<Image> images(const Shape& shape) {
  std::vector<Image> all(kImages);
  for (int i = 0; i < kImages; ++i)
    for (const uint8_t pixel : testing::random_pixels(shape, 10 + i)) all[i].push_back((pixel - 127.5) / 64);
  return all;
}

/// Returns the ranges of a node's channels over the images.
std::vector<Interval> channels(const Graph& graph, const FloatParams& params, int n) {
  const Shape& shape = graph.nodes[n].shape;
  std::vector<Interval> ranges(shape.c, {1e30, -1e30});
  for (const Image& image : images(graph.nodes[0].shape)) {
    const Image values = walk_float(graph, params, image)[n];
    for (size_t i = 0; i < values.size(); ++i) {
      Interval& range = ranges[i / (static_cast<size_t>(shape.h) * shape.w)];
      range = {std::min(range.lo, values[i]), std::max(range.hi, values[i])};
    }
  }
  return ranges;
}

ChannelRanges ranges_of(const Graph& graph, const FloatParams& params, const FunctionPair& pair) {
  ChannelRanges ranges{channels(graph, params, pair.layer), channels(graph, params, pair.lookup)};
  for (Interval& channel : ranges.input) channel = told_apart(graph.nodes[pair.lookup].function, channel, kSteps);
  return ranges;
}

TEST(EqualizeFunctions, PairsAreLookupsOfALayerAlone) {
  const Graph graph = two_layers();
  std::string text;
  for (const FunctionPair& pair : function_pairs(graph)) {
    text += graph.nodes[pair.layer].name + "-" + graph.nodes[pair.lookup].name + ":";
    for (const int reader : pair.readers) text += " " + graph.nodes[reader].name;
    text += "; ";
  }
  EXPECT_EQ(text, "expand-f1: depthwise; depthwise-f2: grouped; grouped-f3: narrow; narrow-f4:; last-f5: fc; ");
}

TEST(EqualizeFunctions, WhatElseReadsTheLayerOrTheLookupKeepsItsScale) {
  const auto pairs_of = [](const std::vector<NodeSpec>& nodes, const std::vector<int>& outputs = {}) {
    Graph graph = fuse(graph_of(nodes));
    if (!outputs.empty()) graph.outputs = outputs;
    return function_pairs(graph);
  };
  const std::vector<NodeSpec> chain = {conv_of("a", 4), node_of("s", "silu"), conv_of("b", 4)};
  EXPECT_EQ(pairs_of(chain).at(0).readers, std::vector<int>{3});
  EXPECT_TRUE(pairs_of(chain, {3, 1}).empty());
  EXPECT_TRUE(pairs_of(chain, {3, 2}).at(0).readers.empty());
  EXPECT_TRUE(pairs_of({node_of("s", "silu"), conv_of("b", 4)}).empty());  // of the image
  EXPECT_TRUE(pairs_of({conv_of("a", 4), node_of("r", "relu"), node_of("s", "silu"), conv_of("b", 4)}).empty());
  // The sum becomes b's residual: s is read by b twice, as its input and as its residual.
  const auto sum = pairs_of(
      {conv_of("a", 4), node_of("s", "silu"), conv_of("b", 4), node_of("t", "add", {"b", "s"}), conv_of("c", 4)});
  EXPECT_TRUE(sum.at(0).readers.empty());
}

TEST(EqualizeFunctions, TheFunctionStaysAndChannelsFillOneRange) {
  for (const double power : {1.0, 0.5}) {
    Graph graph = two_layers();
    const FloatParams before = uneven_params(graph);
    FloatParams after = before;
    const std::vector<FunctionPair> pairs = function_pairs(graph);
    for (const FunctionPair& pair : pairs) {
      const ChannelRanges ranges = ranges_of(graph, before, pair);
      EXPECT_GT(spread(ranges.input), 1.5) << graph.nodes[pair.lookup].name;
      equalize_function(graph, pair, ranges, power, after);
    }
    Graph scaled = graph;
    for (const FunctionPair& pair : pairs) scaled.nodes[pair.lookup].groups = scaled.nodes[pair.lookup].shape.c;
    for (const Image& image : images(graph.nodes[0].shape)) {
      const Image a = walk_float(graph, before, image).back(), b = walk_float(scaled, after, image).back();
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::fabs(a[i]))) << i;
    }
    for (const FunctionPair& pair : pairs) {
      const std::vector<Interval> outputs = channels(scaled, after, pair.lookup);
      const double moved = spread(outputs) / spread(channels(graph, before, pair.lookup));
      if (pair.readers.empty()) {
        EXPECT_NEAR(moved, 1, 1e-4);
        continue;
      }
      // With power 1 every channel reaches an end of the range that all have in common.
      Interval all;
      for (const Interval& c : outputs) all = {std::min(all.lo, c.lo), std::max(all.hi, c.hi)};
      for (const Interval& c : outputs) {
        if (power < 1) break;
        const double reached = std::max(c.hi / all.hi, all.lo < 0 ? c.lo / all.lo : 0);
        EXPECT_NEAR(reached, 1, 1e-4) << graph.nodes[pair.lookup].name;
      }
      EXPECT_LT(moved, 1) << graph.nodes[pair.lookup].name;
    }
  }
}

/// For channels -6..140 and -5..2 a range in the proportions of the second wastes less: the first leaves out 1.7 bits
/// of it, while in one of the first's proportions the second would have 4.1 bits less.
TEST(EqualizeFunctions, FactorsByHand) {
  const std::vector<double> like = fitting_factors({{-1, 1}, {-2, 2}, {-4, 4}});
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(like[i], std::exp2(i - 1), 1e-12);
  const std::vector<double> unlike = fitting_factors({{-6, 140}, {-5, 2}});
  EXPECT_NEAR(unlike[0] / unlike[1], 70, 1e-9);
  const std::vector<double> positive = fitting_factors({{0.5, 3}, {0, 0}, {1, 12}});  // zero is in the range
  EXPECT_NEAR(positive[2] / positive[0], 4, 1e-12);
  EXPECT_EQ(positive[1], 1);
  const std::vector<double> tiny = fitting_factors({{-1, 1}, {-1e-9, 1e-9}});
  EXPECT_NEAR(tiny[0] / tiny[1], 256, 1e-9);
  for (const double factor : fitting_factors({{0, 0}, {0, 0}})) EXPECT_EQ(factor, 1);
}

/// Behind a relu6 and a relu; two of the pairs are of no depthwise layer, or have no relu.
Graph depthwise_layers() {
  return fuse(graph_of({conv_of("expand", 12), node_of("r1", "relu6"), conv_of("depthwise", 12, 3, 12),
                        node_of("bn", "batch_norm"), node_of("r2", "relu"), conv_of("project", 8),
                        conv_of("linear", 8, 3, 8), conv_of("dense", 6), node_of("r3", "relu"), conv_of("last", 5)}));
}

TEST(EqualizeDepthwise, TheFunctionStaysAndChannelsFillOneRange) {
  const Graph graph = depthwise_layers();
  const FloatParams before = uneven_params(graph);
  FloatParams after = before;
  const std::vector<LayerPair> pairs = depthwise_pairs(graph);
  ASSERT_EQ(pairs.size(), 2u);
  const auto largest = [&](const FloatParams& params, const LayerPair& pair) {
    std::vector<double> result;
    for (const Interval& channel : channels(graph, params, pair.first)) result.push_back(channel.hi);
    return result;
  };
  for (const LayerPair& pair : pairs) equalize_depthwise(graph, pair, largest(before, pair), after);
  for (const Image& image : images(graph.nodes[0].shape)) {
    const Image a = walk_float(graph, before, image).back(), b = walk_float(graph, after, image).back();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5 * (1 + std::fabs(a[i]))) << i;
  }
  const std::vector<double> first = largest(before, pairs[0]), second = largest(before, pairs[1]);
  const double end = *std::max_element(second.begin(), second.end());
  int checked = 0;
  for (size_t c = 0; c < first.size(); ++c) {
    if (first[c] < 6 / 1.05 / 32 || second[c] < end / 1.05 / 32) continue;  // the factor reaches its bound
    ++checked;
    EXPECT_NEAR(largest(after, pairs[0])[c], std::max(first[c], 6 / 1.05), 1e-4) << c;
    EXPECT_NEAR(largest(after, pairs[1])[c], std::max(second[c], std::sqrt(second[c] * end / 1.05)), 1e-4 * end) << c;
  }
  EXPECT_GE(checked, 6);
}

TEST(EqualizeDepthwise, ABoundBehindAPoolIsNoRelu) {
  const auto pairs_with = [](const char* behind) {
    return depthwise_pairs(fuse(graph_of({conv_of("a", 4), node_of("r", "relu"), node_of("p", "global_avg_pool"),
                                          node_of("c", behind), conv_of("depthwise", 4, 1, 4)})))
        .size();
  };
  EXPECT_EQ(pairs_with("relu"), 1u);
  EXPECT_EQ(pairs_with("relu6"), 0u);
}

/// A channel of zeros gets the largest factor, one at the end of the range keeps its weights.
TEST(EqualizeDepthwise, FactorsHaveBounds) {
  const Graph graph = depthwise_layers();
  const FloatParams before = uneven_params(graph);
  FloatParams after = before;
  std::vector<double> largest(12, 6);
  largest[1] = 0;
  equalize_depthwise(graph, depthwise_pairs(graph)[0], largest, after);
  const std::vector<float>&a = before.at("expand.weight"), &b = after.at("expand.weight");
  const size_t row = a.size() / 12;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(b[i], a[i] * (i / row == 1 ? 32.0f : 1.0f)) << i;
}

}  // namespace
}  // namespace octet
