// SPDX-License-Identifier: Apache-2.0
// Cross-layer equalization keeps the function and makes ranges one; bias absorption where it is exact.
#include "src/quant/equalize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/base/error.h"
#include "src/net/zoo.h"
#include "src/quant/plan.h"
#include "tests/quant/random_plan.h"
#include "tests/quant/walks.h"

namespace octet {
namespace {

using testing::conv_of;
using testing::graph_of;
using testing::Image;
using testing::node_of;
using testing::random_params;
using testing::walk_float;

/// Expanded, depthwise, narrow, as in MobileNetV2; then groups, pools and a flatten of more than one pixel.
Graph network() {
  NodeSpec pool = node_of("pool", "max_pool");
  pool.attributes = {{"kernel", 2}, {"stride", 2}};
  return fuse(graph_of({conv_of("expand", 12),
                        node_of("bn1", "batch_norm"),
                        node_of("r1", "relu"),
                        conv_of("depthwise", 12, 3, 12),
                        node_of("r2", "relu"),
                        conv_of("narrow", 6, 1, 1, 0),
                        node_of("bn3", "batch_norm"),
                        conv_of("grouped", 8, 3, 2),
                        node_of("r4", "relu"),
                        pool,
                        node_of("flat", "flatten"),
                        {"fc", "linear", {}, {{"out_channels", 5}, {"bias", 1}}}}));
}

/// Channels of very different ranges, so that there is something to equalize.
FloatParams uneven_params(const Graph& graph, uint64_t seed) {
  FloatParams params = random_params(graph, seed);
  for (const Node& node : graph.nodes) {
    if (!has_weight(node.op)) continue;
    std::vector<float>& weight = params.at(node.name + ".weight");
    const size_t row = weight.size() / node.out_channels;
    for (size_t i = 0; i < weight.size(); ++i) weight[i] *= std::exp2(static_cast<float>(i / row % 7) - 3);
  }
  return params;
}

Image random_image(const Shape& shape, uint64_t seed) {
  Image image;
  for (const uint8_t pixel : testing::random_pixels(shape, seed)) image.push_back((pixel - 127.5) / 64);
  return image;
}

/// Largest difference of the logits, over the largest logit.
double moved(const Graph& graph, const FloatParams& before, const FloatParams& after, uint64_t seed) {
  const Image image = random_image(graph.nodes[0].shape, seed);
  const Image a = walk_float(graph, before, image).back(), b = walk_float(graph, after, image).back();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(a[i]));
    difference = std::max(difference, std::fabs(a[i] - b[i]));
  }
  EXPECT_GT(largest, 0);
  return difference / largest;
}

/// Largest magnitudes of weights, by the channel they write or read (of `channels`).
std::vector<double> ranges(const Node& node, const FloatParams& params, size_t channels, bool reads) {
  const std::vector<float>& weight = params.at(node.name + ".weight");
  const size_t outputs = static_cast<size_t>(node.out_channels), row = weight.size() / outputs;
  const size_t inputs = channels / static_cast<size_t>(node.groups);  // of a group that reads them
  std::vector<double> largest(reads ? channels : outputs);
  for (size_t i = 0; i < weight.size(); ++i) {
    const size_t k = i / row, c = reads ? i % row / (row / inputs) + k / (outputs / node.groups) * inputs : k;
    largest[c] = std::max(largest[c], std::fabs(double{weight[i]}));
  }
  return largest;
}

TEST(Equalize, PairsAreLayersThatOnlyReluAndPoolsSeparate) {
  const Graph graph = network();
  std::vector<std::string> names;
  for (const LayerPair& pair : layer_pairs(graph))
    names.push_back(graph.nodes[pair.first].name + "-" + graph.nodes[pair.second].name);
  EXPECT_EQ(names, (std::vector<std::string>{"expand-depthwise", "depthwise-narrow", "narrow-grouped", "grouped-fc"}));
}

TEST(Equalize, NothingThatIsReadTwiceAddedOrBentIsAPair) {
  EXPECT_TRUE(layer_pairs(fuse(graph_of({conv_of("a", 4), node_of("s", "silu"), conv_of("b", 4)}))).empty());
  EXPECT_TRUE(layer_pairs(fuse(graph_of({conv_of("a", 4), node_of("r", "relu"), conv_of("b", 4),
                                         node_of("s", "add", {"b", "r"}), node_of("g", "global_avg_pool")})))
                  .empty());
  Graph seen = fuse(graph_of({conv_of("a", 4), conv_of("b", 4)}));
  EXPECT_EQ(layer_pairs(seen).size(), 1u);
  seen.outputs = {1, 2};
  EXPECT_TRUE(layer_pairs(seen).empty());
  // b takes the other side as its residual: a is scaled for c alone, b for nobody.
  const Graph residual = fuse(
      graph_of({conv_of("z", 4), conv_of("a", 4), conv_of("b", 4), node_of("s", "add", {"b", "z"}), conv_of("c", 4)}));
  const std::vector<LayerPair> pairs = layer_pairs(residual);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(residual.nodes[pairs[0].first].name, "a");
}

TEST(Equalize, LogitsStayAndRangesBecomeOne) {
  const Graph graph = network();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const FloatParams before = uneven_params(graph, seed);
    FloatParams after = before;
    equalize(graph, after);
    EXPECT_LT(moved(graph, before, after, seed), 1e-5) << seed;
    for (const LayerPair& pair : layer_pairs(graph)) {
      const Node &first = graph.nodes[pair.first], &second = graph.nodes[pair.second];
      const size_t channels = static_cast<size_t>(first.out_channels);
      const std::vector<double> writes = ranges(first, after, channels, false),
                                reads = ranges(second, after, channels, true);
      for (size_t c = 0; c < channels; ++c) EXPECT_NEAR(writes[c] / reads[c], 1, 1e-3) << first.name << " " << c;
    }
  }
}

/// Channel 3 is apart from the others, with one range on both sides of each pair: it never moves, and the others do,
/// in more than one sweep.
TEST(Equalize, GoesOnUntilTheChannelThatMovesMostHasSettled) {
  for (const size_t still : {size_t{0}, size_t{3}}) {
    const Graph graph = fuse(
        graph_of({conv_of("a", 4), node_of("r", "relu"), conv_of("b", 4), node_of("r2", "relu"), conv_of("c", 4)}));
    FloatParams params = uneven_params(graph, 9);
    for (const char* name : {"a.weight", "b.weight", "c.weight"})
      for (size_t i = 0; i < 16; ++i)
        if (i / 4 == still || i % 4 == still) params.at(name)[i] = i / 4 == i % 4 ? 1 : 0;
    const FloatParams before = params;
    equalize(graph, params);
    EXPECT_EQ(params.at("b.weight")[5 * still], 1);
    EXPECT_LT(moved(graph, before, params, 9), 1e-5);
    for (const LayerPair& pair : layer_pairs(graph)) {
      const std::vector<double> writes = ranges(graph.nodes[pair.first], params, 4, false),
                                reads = ranges(graph.nodes[pair.second], params, 4, true);
      for (size_t c = 0; c < 4; ++c) EXPECT_NEAR(writes[c] / reads[c], 1, 1e-3) << "channel " << c << " of " << still;
    }
  }
}

TEST(Equalize, LogitsOfRandomNetworksStay) {
  int pairs = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Graph graph = fuse(test::random_graph(seed, 30));
    if (layer_pairs(graph).empty()) continue;
    graph = equalizable(graph);
    const FloatParams before = uneven_params(graph, seed);
    FloatParams after = before;
    equalize(graph, after);
    EXPECT_LT(moved(graph, before, after, seed), 1e-5) << seed;
    pairs += static_cast<int>(layer_pairs(graph).size());
  }
  EXPECT_GT(pairs, 50);  // or this says little
}

TEST(Equalize, AScalePassesThroughResize) {
  for (const char* op : {"resize", "resize_bilinear"}) {
    NodeSpec up = node_of("up", op);
    up.attributes = {{"factor", 2}};
    const Graph graph = fuse(graph_of({conv_of("a", 4), node_of("r", "relu"), up, conv_of("b", 4, 3)}));
    ASSERT_EQ(layer_pairs(graph).size(), 1u);
    const FloatParams before = uneven_params(graph, 6);
    FloatParams after = before;
    equalize(graph, after);
    EXPECT_NE(after.at("a.weight"), before.at("a.weight"));
    EXPECT_LT(moved(graph, before, after, 6), 1e-5) << op;
  }
}

TEST(Equalize, AChannelWithoutWeightsOnOneSideStays) {
  const Graph graph = fuse(graph_of({conv_of("a", 3), node_of("r", "relu"), conv_of("b", 2)}));
  FloatParams params = uneven_params(graph, 5);
  for (size_t i = 0; i < 4; ++i) params.at("a.weight")[i] = 0;
  for (size_t k = 0; k < 2; ++k) params.at("b.weight")[3 * k + 1] = 0;
  const FloatParams before = params;
  equalize(graph, params);
  EXPECT_EQ(params.at("a.bias")[0], before.at("a.bias")[0]);
  EXPECT_EQ(params.at("a.bias")[1], before.at("a.bias")[1]);
  EXPECT_NE(params.at("a.bias")[2], before.at("a.bias")[2]);
  EXPECT_LT(moved(graph, before, params, 5), 1e-5);
}

TEST(Equalize, Relu6BetweenLayersBecomesReluAndOnlyThere) {
  const Graph graph = equalizable(
      fuse(graph_of({conv_of("a", 4), node_of("r", "relu6"), conv_of("b", 4), node_of("r2", "relu6"), conv_of("c", 4),
                     node_of("s", "add", {"c", "r2"}), node_of("r3", "relu6"), node_of("g", "global_avg_pool")})));
  EXPECT_EQ(graph.nodes[1].activation, Activation::relu);
  EXPECT_EQ(graph.nodes[2].activation, Activation::relu6);  // read twice
  EXPECT_EQ(graph.nodes[3].activation, Activation::relu6);
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(Equalize, ANetworkWithNothingToEqualizeIsNamed) {
  Graph graph = fuse(graph_of({conv_of("a", 4), node_of("s", "silu"), node_of("g", "global_avg_pool")}));
  graph.name = "lonely";
  EXPECT_NE(refusal([&] { equalizable(graph); }).find("calibrate.equalize: in 'lonely' no two layers"),
            std::string::npos);
}

TEST(BiasCorrection, ALayerWithoutABiasIsNamed) {
  EXPECT_EQ(refusal([] { require_biases(network()); }), "");
  EXPECT_NE(
      refusal([] { require_biases(fuse(graph_of({conv_of("bare", 4, 1, 1, 0)}))); }).find("layer 'bare' has neither"),
      std::string::npos);
}

/// Moments that say: channel 0 is 5 or more, nearly always.
std::vector<ChannelMoments> moments_of(const Graph& graph) {
  std::vector<ChannelMoments> moments(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto channels = static_cast<size_t>(graph.nodes[n].out_channels);
    if (has_weight(graph.nodes[n].op))
      moments[n] = {std::vector<double>(channels, 0), std::vector<double>(channels, 1)};
  }
  for (ChannelMoments& of_node : moments)
    if (!of_node.mean.empty()) of_node.mean[0] = 8;
  return moments;
}

TEST(AbsorbBiases, WhatAChannelIsAtLeastGoesToTheNextLayer) {
  for (const bool normalized : {false, true}) {
    std::vector<NodeSpec> nodes = {conv_of("a", 3), node_of("r", "relu"), conv_of("b", 4)};
    if (normalized) {
      nodes = {conv_of("a", 3, 1, 1, 0), node_of("bn_a", "batch_norm"), node_of("r", "relu"), conv_of("b", 4, 1, 1, 0),
               node_of("bn_b", "batch_norm")};
    }
    const Graph graph = fuse(graph_of(nodes));
    FloatParams params = random_params(graph, 4);
    const std::string bias = bias_name(graph.nodes[1]);
    params.at(bias)[0] += 100;  // far above 5 for every image
    const FloatParams before = params;
    absorb_biases(graph, moments_of(graph), params);
    EXPECT_FLOAT_EQ(params.at(bias)[0], before.at(bias)[0] - 5);
    EXPECT_EQ(params.at(bias)[1], before.at(bias)[1]);
    EXPECT_LT(moved(graph, before, params, 3), 1e-5);
    EXPECT_NE(params.at(normalized ? "bn_b.running_mean" : "b.bias"),
              before.at(normalized ? "bn_b.running_mean" : "b.bias"));
  }
}

/// Behind an average, where fuse leaves it, a relu is not the first layer's own.
TEST(AbsorbBiases, AReluBehindAnAverageCutsOffWhatIsBelow) {
  NodeSpec pool = node_of("pool", "avg_pool");
  pool.attributes = {{"kernel", 2}, {"stride", 2}};
  const Graph graph = fuse(graph_of({conv_of("a", 3), pool, node_of("r", "relu"), conv_of("b", 4)}));
  ASSERT_EQ(graph.nodes[1].activation, Activation::none);
  FloatParams params = random_params(graph, 4);
  params.at("a.bias")[0] += 100;
  const FloatParams before = params;
  absorb_biases(graph, moments_of(graph), params);
  EXPECT_FLOAT_EQ(params.at("a.bias")[0], before.at("a.bias")[0] - 5);
  EXPECT_LT(moved(graph, before, params, 3), 1e-5);

  const Graph without =
      fuse(graph_of({conv_of("a", 3), pool, conv_of("b", 4)}));  // negative values would pass: no need
  params = before;
  absorb_biases(without, moments_of(without), params);
  EXPECT_EQ(params.at("a.bias"), before.at("a.bias"));
}

TEST(AbsorbBiases, ThroughPoolsAndFlattenButNotThroughPadding) {
  const Graph graph = network();
  FloatParams params = random_params(graph, 4);
  for (const char* name : {"depthwise.bias", "grouped.bias"}) params.at(name)[0] += 100;
  const FloatParams before = params;
  absorb_biases(graph, moments_of(graph), params);
  EXPECT_EQ(params.at("bn1.bias"), before.at("bn1.bias"));  // the depthwise pads
  EXPECT_EQ(params.at("bn3.bias"), before.at("bn3.bias"));  // no relu, and grouped pads
  EXPECT_FLOAT_EQ(params.at("depthwise.bias")[0], before.at("depthwise.bias")[0] - 5);
  EXPECT_FLOAT_EQ(params.at("grouped.bias")[0], before.at("grouped.bias")[0] - 5);
  EXPECT_LT(moved(graph, before, params, 3), 1e-5);
}

}  // namespace
}  // namespace octet
