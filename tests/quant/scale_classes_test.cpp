// SPDX-License-Identifier: Apache-2.0
// Channels of values that are scaled keep what the network computes, reach as far as they may, and no further.
#include "src/quant/scale_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

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
using Powers = ScaleClasses::Powers;

constexpr Powers kAll{1, 1, 1};

/// A block of MobileNetV2 with its shortcut, a concat that a grouped layer reads, a pool and a flatten before a linear.
Graph network() {
  return fuse(graph_of({conv_of("stem", 6),
                        node_of("bn", "batch_norm"),
                        node_of("r0", "relu"),
                        conv_of("expand", 12),
                        node_of("r1", "relu6"),
                        conv_of("depthwise", 12, 3, 12),
                        node_of("r2", "relu6"),
                        conv_of("project", 6),
                        node_of("sum", "add", {"project", "r0"}),
                        conv_of("left", 4, 1),
                        node_of("r3", "relu"),
                        {"right", "conv2d", {"sum"}, {{"out_channels", 4}, {"kernel", 1}, {"bias", 1}}},
                        node_of("both", "concat", {"r3", "right"}),
                        conv_of("grouped", 8, 3, 2),
                        node_of("r4", "relu"),
                        {"pool", "max_pool", {}, {{"kernel", 2}, {"stride", 2}}},
                        node_of("flat", "flatten"),
                        {"fc", "linear", {}, {{"out_channels", 5}, {"bias", 1}}}}));
}

/// Channels of very different ranges, some beyond 6.
FloatParams uneven(const Graph& graph) {
  FloatParams params = random_params(graph, 3);
  for (const Node& node : graph.nodes) {
    if (!has_weight(node.op)) continue;
    std::vector<float>& rows = params.at((node.batch_norm.empty() ? node.name : node.batch_norm) + ".weight");
    const size_t row = rows.size() / node.out_channels;
    for (size_t i = 0; i < rows.size(); ++i) rows[i] *= std::exp2(static_cast<float>(i / row % 5) - 3);
  }
  return params;
}

std::vector<std::vector<Image>> values(const Graph& graph, const FloatParams& params) {
  std::vector<std::vector<Image>> all;
  for (int i = 0; i < 4; ++i) {
    Image image;
    for (const uint8_t pixel : testing::random_pixels(graph.nodes[0].shape, 10 + i))
      image.push_back((pixel - 127.5) / 32);
    all.push_back(walk_float(graph, params, image));
  }
  return all;
}

ByChannel largest(const Graph& graph, const FloatParams& params) {
  ByChannel result;
  for (const Node& node : graph.nodes) result.emplace_back(node.shape.c);
  for (const std::vector<Image>& image : values(graph, params))
    for (size_t n = 0; n < image.size(); ++n)
      for (size_t i = 0; i < image[n].size(); ++i) {
        const Shape& shape = graph.nodes[n].shape;
        float& most = result[n][i / (static_cast<size_t>(shape.h) * shape.w)];
        most = std::max(most, static_cast<float>(std::fabs(image[n][i])));
      }
  return result;
}

int index_of(const Graph& graph, const std::string& name) {
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].name == name) return static_cast<int>(n);
  ADD_FAILURE() << "no node '" << name << "'";
  return 0;
}

/// Returns by how much the node's channels differ: the largest over the smallest that is not 0.
double spread(std::vector<float> channels) {
  std::erase(channels, 0.0f);
  return *std::max_element(channels.begin(), channels.end()) / *std::min_element(channels.begin(), channels.end());
}

TEST(ScaleClasses, TheNetworkGivesTheSameWithWiderChannels) {
  const Graph graph = network();
  const ScaleClasses classes(graph);
  ASSERT_TRUE(classes.any());
  const FloatParams before = uneven(graph);
  for (const Powers& powers : {kAll, Powers{0.5, 0.5, 0}, Powers{0, 1, 0.5}}) {
    FloatParams after = before;
    const std::vector<float> factors = classes.factors(largest(graph, before), powers);
    EXPECT_GT(classes.bits(factors), 0.1);
    classes.scale(factors, after);
    const auto wanted = values(graph, before), got = values(graph, after);
    for (size_t image = 0; image < wanted.size(); ++image)
      for (size_t i = 0; i < wanted[image].back().size(); ++i)
        EXPECT_NEAR(got[image].back()[i], wanted[image].back()[i], 1e-4 * (1 + std::fabs(wanted[image].back()[i])));
  }
}

TEST(ScaleClasses, NoValueBecomesWiderThanTheWidestNorMoreThanSix) {
  const Graph graph = network();
  const ScaleClasses classes(graph);
  const FloatParams before = uneven(graph);
  FloatParams after = before;
  const ByChannel was = largest(graph, before);
  classes.scale(classes.factors(was, kAll), after);
  const ByChannel is = largest(graph, after);
  for (size_t n = 1; n + 1 < graph.nodes.size(); ++n) {
    const float most = *std::max_element(was[n].begin(), was[n].end());
    EXPECT_LE(*std::max_element(is[n].begin(), is[n].end()), 1.0001f * most) << graph.nodes[n].name;
  }
  // Only a depthwise layer reads `expand`, and nothing else holds its channels back: all fill the range.
  const auto expand = static_cast<size_t>(index_of(graph, "expand"));
  EXPECT_GT(spread(was[expand]), 4);
  EXPECT_NEAR(spread(is[expand]), 1, 1e-3);
}

TEST(ScaleClasses, PowersFollowTheLayersThatReadAndWrite) {
  const Graph graph = network();
  const ScaleClasses classes(graph);
  const FloatParams before = uneven(graph);
  const ByChannel reach = largest(graph, before);
  const auto changed = [&](const Powers& powers) {
    FloatParams after = before;
    classes.scale(classes.factors(reach, powers), after);
    std::string names;
    for (const Node& node : graph.nodes)
      if (has_weight(node.op) && after.at((node.batch_norm.empty() ? node.name : node.batch_norm) + ".bias") !=
                                     before.at((node.batch_norm.empty() ? node.name : node.batch_norm) + ".bias"))
        names += node.name + " ";
    return names;
  };
  EXPECT_EQ(changed({1, 0, 0}), "expand ");
  EXPECT_EQ(changed({0, 1, 0}), "stem project ");  // whose add joins them
  EXPECT_EQ(changed({0, 0, 1}), "depthwise left right grouped ");
  EXPECT_EQ(changed({0, 0, 0}), "");
}

TEST(ScaleClasses, WhatIsNotScaledAlikeStays) {
  const auto any = [](const std::vector<NodeSpec>& nodes) { return ScaleClasses(fuse(graph_of(nodes))).any(); };
  EXPECT_TRUE(any({conv_of("a", 4), conv_of("b", 4)}));
  EXPECT_FALSE(any({conv_of("a", 4), node_of("s", "silu"), conv_of("b", 4)}));  // a function is not linear
  EXPECT_FALSE(any({conv_of("a", 4)}));                                         // the output is the user's
  EXPECT_FALSE(any({node_of("p", "relu"), conv_of("b", 4)}));                   // nothing writes the image
  EXPECT_FALSE(any({conv_of("a", 4), node_of("m", "mul", {"a", "a"}), conv_of("b", 4)}));
}

}  // namespace
}  // namespace octet
