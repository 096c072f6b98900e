// SPDX-License-Identifier: Apache-2.0
// Which nodes a kernel may compute together: those of known networks, and none where somebody else reads an inner one.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>

#include "src/engine/fusion.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"

namespace octet::test {
namespace {

Int8Graph zoo_graph(const char* model, const Shape& input) {
  return random_int8_graph(build_model({.name = model, .input = input, .folded = true}), {}, 1);
}

std::vector<std::string> names_of(const Int8Graph& graph, const NodeGroup& group) {
  std::vector<std::string> names = {std::string(group_name(group.kind))};
  for (const int node : group.nodes) names.push_back(graph.nodes[node].name);
  return names;
}

using Names = std::vector<std::string>;

TEST(NodeGroups, TheFirstLayerOfAResNetHasItsMaxPool) {
  for (const char* model : {"resnet18", "resnet34"}) {
    const Int8Graph graph = zoo_graph(model, {3, 224, 224});
    const std::vector<NodeGroup> groups = node_groups(graph);
    ASSERT_EQ(groups.size(), 2u) << model;
    EXPECT_EQ(names_of(graph, groups[0]), (Names{"conv_max_pool", "conv1", "maxpool"}));
    EXPECT_EQ(names_of(graph, groups[1]), (Names{"pool_linear", "avgpool", "fc"}));
    EXPECT_EQ(node_groups(zoo_graph(model, {3, 32, 32})).size(), 1u) << "no max-pool";
  }
}

/// Groups of kind expand_reduce in ResNet-50 when one, nodes {expand, reduce}, is changed.
size_t pairs_when(const std::function<void(Int8Graph& graph, int expand, int reduce)>& change) {
  Int8Graph graph = zoo_graph("resnet50", {3, 224, 224});
  const std::vector<NodeGroup> groups = node_groups(graph);
  EXPECT_EQ(names_of(graph, groups.at(1)), (Names{"expand_reduce", "layer1.0.conv3", "layer1.1.conv1"}));
  change(graph, groups[1].nodes[0], groups[1].nodes[1]);
  const std::vector<NodeGroup> changed = node_groups(graph);
  return std::count_if(changed.begin(), changed.end(),
                       [](const NodeGroup& g) { return g.kind == GroupKind::expand_reduce; });
}

TEST(NodeGroups, ABottleneckEndsAsTheNextBegins) {
  EXPECT_EQ(pairs_when([](Int8Graph&, int, int) {}), 12u) << "16 blocks, of which 4 begin with another width";
  EXPECT_EQ(pairs_when([](Int8Graph& graph, int expand, int) { graph.outputs.push_back(expand); }), 12u);
  for (const bool first : {true, false}) {
    const auto changed = [&](const std::function<void(Int8Node&)>& change) {
      return pairs_when(
          [&](Int8Graph& graph, int expand, int reduce) { change(graph.nodes[first ? expand : reduce]); });
    };
    EXPECT_EQ(changed([](Int8Node& n) { n.window.kernel_w = 3; }), 11u);
    EXPECT_EQ(changed([](Int8Node& n) { n.window.stride_h = 2; }), 11u);
    EXPECT_EQ(changed([](Int8Node& n) { n.groups = 2; }), 11u);
    EXPECT_EQ(changed([](Int8Node& n) { n.float_output = true; }), 11u);
  }
  EXPECT_EQ(pairs_when([](Int8Graph& graph, int expand, int) { graph.nodes[expand].inputs.pop_back(); }), 12u)
      << "without a residual";
  EXPECT_EQ(pairs_when([](Int8Graph& graph, int, int reduce) { graph.nodes[reduce].inputs.push_back(0); }), 11u);
  EXPECT_EQ(pairs_when([](Int8Graph& graph, int, int reduce) { graph.nodes[reduce].inputs = {0}; }), 11u);
  EXPECT_EQ(pairs_when([](Int8Graph& graph, int, int reduce) { graph.nodes[reduce].shape.c = 256; }), 11u);
  EXPECT_EQ(pairs_when([](Int8Graph& graph, int expand, int) { graph.nodes[expand].shape.c = 64; }), 11u);
  EXPECT_EQ(
      pairs_when([](Int8Graph& graph, int expand, int) { graph.nodes[graph.nodes[expand].inputs[0]].shape.c = 256; }),
      11u)
      << "it does not widen";
}

TEST(NodeGroups, MobileNetV2IsInvertedResiduals) {
  const Int8Graph graph = zoo_graph("mobilenet_v2", {3, 224, 224});
  const std::vector<NodeGroup> groups = node_groups(graph);
  ASSERT_EQ(groups.size(), 18u);
  EXPECT_EQ(groups.back().kind, GroupKind::pool_linear);
  EXPECT_EQ(names_of(graph, groups[0]), (Names{"inverted_residual", "features.1.conv.0.0", "features.1.conv.1"}));
  EXPECT_EQ(names_of(graph, groups[1]),
            (Names{"inverted_residual", "features.2.conv.0.0", "features.2.conv.1.0", "features.2.conv.2"}));
  int residuals = 0, strides = 0;
  for (const NodeGroup& group : std::span(groups).first(17)) {
    const size_t nodes = group.nodes.size();
    ASSERT_EQ(nodes, &group == &groups[0] ? 2u : 3u);
    for (size_t i = 1; i < nodes; ++i) EXPECT_EQ(graph.nodes[group.nodes[i]].inputs[0], group.nodes[i - 1]);
    residuals += graph.nodes[group.nodes.back()].inputs.size() == 2;
    strides += graph.nodes[group.nodes[nodes - 2]].window.stride_h == 2;
  }
  EXPECT_EQ(residuals, 10);
  EXPECT_EQ(strides, 4);
}

TEST(NodeGroups, OtherNetworks) {
  EXPECT_EQ(node_groups(zoo_graph("vgg16_bn", {3, 32, 32})).size(), 5u);
  EXPECT_TRUE(node_groups(zoo_graph("unet", {3, 32, 32})).empty()) << "each pooled convolution is read by a skip too";
  // Look-ups or squeeze and excite stand between convolutions, but for the first three blocks.
  EXPECT_EQ(node_groups(zoo_graph("mobilenet_v3_large", {3, 224, 224})).size(), 3u);
  EXPECT_EQ(node_groups(zoo_graph("efficientnet_b0", {3, 32, 32})).size(), 1u) << "its end";
}

/// How many groups of three MobileNetV2 has when its third block, nodes {expand, depthwise, project}, is changed.
size_t groups_when(const std::function<void(Int8Graph& graph, const std::vector<int>& block)>& change) {
  Int8Graph graph = zoo_graph("mobilenet_v2", {3, 32, 32});
  const std::vector<int> block = node_groups(graph).at(2).nodes;
  EXPECT_EQ(graph.nodes[block[2]].inputs.size(), 2u);
  change(graph, block);
  const std::vector<NodeGroup> groups = node_groups(graph);
  return std::count_if(groups.begin(), groups.end(), [](const NodeGroup& g) { return g.nodes.size() == 3; });
}

void add_reader(Int8Graph& graph, int node) {
  Int8Node reader = graph.nodes[node];
  reader.op = Int8Op::requantize, reader.inputs = {node};
  graph.nodes.push_back(reader);
}

TEST(NodeGroups, AnInnerNodeIsReadByNobodyElse) {
  EXPECT_EQ(groups_when([](Int8Graph&, const std::vector<int>&) {}), 16u);
  for (const int inner : {0, 1}) {
    EXPECT_EQ(groups_when([&](Int8Graph& graph, const auto& block) { add_reader(graph, block[inner]); }), 15u);
    EXPECT_EQ(groups_when([&](Int8Graph& graph, const auto& block) { graph.outputs.push_back(block[inner]); }), 15u);
  }
  EXPECT_EQ(groups_when([](Int8Graph& graph, const auto& block) { add_reader(graph, block[2]); }), 16u);
  EXPECT_EQ(groups_when([](Int8Graph& graph, const auto& block) { graph.outputs.push_back(block[2]); }), 16u);
}

TEST(NodeGroups, AnInvertedResidualHasTheseWindows) {
  const auto depthwise = [](const std::function<void(Int8Node&)>& change) {
    return groups_when([&](Int8Graph& graph, const auto& block) { change(graph.nodes[block[1]]); });
  };
  EXPECT_EQ(depthwise([](Int8Node& n) { n.window.pad = even_padding(0, 0); }), 15u);
  EXPECT_EQ(depthwise([](Int8Node& n) { n.window.pad = {0, 0, 1, 1}; }), 15u) << "SAME of an even image";
  EXPECT_EQ(depthwise([](Int8Node& n) { n.window.kernel_h = 5; }), 15u);
  EXPECT_EQ(depthwise([](Int8Node& n) { n.window.stride_w = 2; }), 15u);
  EXPECT_EQ(depthwise([](Int8Node& n) { n.window.dilation_h = 2; }), 15u);
  EXPECT_EQ(depthwise([](Int8Node& n) { n.groups = 1; }), 15u);
  EXPECT_EQ(depthwise([](Int8Node& n) { n.shape.c *= 2; }), 15u) << "two channels of each";
  for (const int pointwise : {0, 2}) {
    const auto changed = [&](const std::function<void(Int8Node&)>& change) {
      return groups_when([&](Int8Graph& graph, const auto& block) { change(graph.nodes[block[pointwise]]); });
    };
    EXPECT_EQ(changed([](Int8Node& n) { n.window.kernel_w = 3; }), 15u);
    EXPECT_EQ(changed([](Int8Node& n) { n.window.stride_h = 2; }), 15u);
    EXPECT_EQ(changed([](Int8Node& n) { n.groups = 2; }), 15u);
    EXPECT_EQ(changed([](Int8Node& n) { n.op = Int8Op::linear; }), 15u);
  }
  EXPECT_EQ(groups_when([](Int8Graph& graph, const auto& block) { graph.nodes[block[2]].inputs[1] = 1; }), 16u)
      << "any residual";
  EXPECT_EQ(groups_when([](Int8Graph& graph, const auto& block) { graph.nodes[block[0]].inputs.push_back(0); }), 15u)
      << "but none of an inner one";
  EXPECT_EQ(groups_when([](Int8Graph& graph, const auto& block) {
              graph.nodes[block[2]].inputs = {graph.nodes[block[0]].inputs[0], block[1]};
            }),
            15u)
      << "the depthwise convolution is the residual";
  EXPECT_EQ(groups_when([](Int8Graph& graph, const auto& block) { graph.nodes[block[2]].float_output = true; }), 15u);
}

TEST(NodeGroups, WithoutItsFirstConvolutionABlockIsAGroupOfTwo) {
  Int8Graph graph = zoo_graph("mobilenet_v2", {3, 32, 32});
  const std::vector<int> block = node_groups(graph).at(2).nodes;
  add_reader(graph, block[0]);
  EXPECT_EQ(node_groups(graph).at(2).nodes, (std::vector{block[1], block[2]}));
}

TEST(NodeGroups, AConvolutionWithALookupOfItsOwnEndsNoGroup) {
  Int8Graph graph = zoo_graph("mobilenet_v2", {3, 32, 32});
  const std::vector<NodeGroup> all = node_groups(graph);
  const int last = all.at(16).nodes.back();
  const auto reader = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const Int8Node& n) { return !n.inputs.empty() && n.inputs[0] == last; });
  reader->op = Int8Op::lookup;
  EXPECT_EQ(merged_convolutions(graph)[reader - graph.nodes.begin()], last);
  EXPECT_EQ(node_groups(graph).size(), all.size() - 1);
}

TEST(NodeGroups, NoNodeIsInTwo) {
  Int8Graph graph = zoo_graph("mobilenet_v2", {3, 32, 32});
  const std::vector<NodeGroup> all = node_groups(graph);
  const int last = all.at(16).nodes.back();
  for (Int8Node& n : graph.nodes) {
    if (!n.inputs.empty() && n.inputs[0] == last) n.op = Int8Op::max_pool;
  }
  const std::vector<NodeGroup> groups = node_groups(graph);
  ASSERT_EQ(groups.size(), all.size());
  EXPECT_EQ(groups.at(16).kind, GroupKind::inverted_residual);
}

/// Groups of kind conv_lookup when YOLOX's first convolution and function, of a table a channel, are changed.
size_t lookups_when(const std::function<void(Int8Graph& graph, int conv, int lookup)>& change) {
  Int8Graph graph = zoo_graph("yolox_nano", {3, 64, 64});
  const auto first =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Int8Node& n) { return n.op == Int8Op::lookup; });
  if (first == graph.nodes.end()) return 99;
  const int lookup = static_cast<int>(first - graph.nodes.begin());
  Int8Node& n = graph.nodes[lookup];
  n.groups = n.shape.c;
  n.table.resize(static_cast<size_t>(n.groups) * 256);
  change(graph, n.inputs[0], lookup);
  const std::vector<NodeGroup> groups = node_groups(graph);
  return std::count_if(groups.begin(), groups.end(), [&](const NodeGroup& g) {
    return g.kind == GroupKind::conv_lookup && g.nodes == std::vector{graph.nodes[lookup].inputs[0], lookup};
  });
}

TEST(NodeGroups, ATableOfEachChannelGoesWithItsConvolution) {
  EXPECT_EQ(lookups_when([](Int8Graph&, int, int) {}), 1u);
  EXPECT_EQ(lookups_when([](Int8Graph& graph, int, int lookup) { graph.nodes[lookup].groups = 1; }), 0u) << "merged";
  EXPECT_EQ(lookups_when([](Int8Graph& graph, int conv, int) { add_reader(graph, conv); }), 0u);
  EXPECT_EQ(lookups_when([](Int8Graph& graph, int conv, int) { graph.outputs.push_back(conv); }), 0u);
  EXPECT_EQ(lookups_when([](Int8Graph& graph, int conv, int) { graph.nodes[conv].inputs.push_back(0); }), 0u);
}

/// Groups of kind pool_linear when MobileNetV2's end, nodes {pool, flatten, linear}, is changed.
size_t ends_when(const std::function<void(Int8Graph& graph, const std::vector<int>& end)>& change) {
  Int8Graph graph = zoo_graph("mobilenet_v2", {3, 32, 32});
  const std::vector<int> group = node_groups(graph).back().nodes;
  change(graph, {group[0], graph.nodes[group[1]].inputs[0], group[1]});
  const std::vector<NodeGroup> groups = node_groups(graph);
  return std::count_if(groups.begin(), groups.end(),
                       [](const NodeGroup& g) { return g.kind == GroupKind::pool_linear; });
}

TEST(NodeGroups, AnEndIsAGlobalAverageAndALinearLayerThatAloneReadsIt) {
  EXPECT_EQ(ends_when([](Int8Graph&, const auto&) {}), 1u);
  for (const int inner : {0, 1}) {
    EXPECT_EQ(ends_when([&](Int8Graph& graph, const auto& end) { add_reader(graph, end[inner]); }), 0u);
    EXPECT_EQ(ends_when([&](Int8Graph& graph, const auto& end) { graph.outputs.push_back(end[inner]); }), 0u);
  }
  EXPECT_EQ(ends_when([](Int8Graph& graph, const auto& end) { graph.nodes[end[0]].op = Int8Op::avg_pool; }), 0u);
  EXPECT_EQ(ends_when([](Int8Graph& graph, const auto& end) { graph.nodes[end[0]].float_output = true; }), 0u);
  EXPECT_EQ(ends_when([](Int8Graph& graph, const auto& end) { graph.nodes[end[1]].op = Int8Op::requantize; }), 0u);
  EXPECT_EQ(ends_when([](Int8Graph& graph, const auto& end) { graph.nodes[end[2]].op = Int8Op::conv2d; }), 0u);
  EXPECT_EQ(ends_when([](Int8Graph& graph, const auto& end) { graph.nodes[end[2]].inputs = {end[0]}; }), 0u)
      << "the flatten reads it too";
}

}  // namespace
}  // namespace octet::test
