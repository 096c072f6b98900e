// SPDX-License-Identifier: Apache-2.0
#include "src/quant/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/net/zoo.h"
#include "src/quant/node_constants.h"
#include "tests/quant/walks.h"

namespace octet {
namespace {

using testing::graph_of;
using testing::Image;
using testing::random_params;
using testing::walk_float;

NodeSpec conv(const std::string& name, std::vector<std::string> inputs = {}) {
  return {name, "conv2d", std::move(inputs), {{"out_channels", 4}, {"kernel", 3}, {"pad", 1}}};
}

int index_of(const Graph& graph, const std::string& name) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].name == name) return static_cast<int>(n);
  }
  return -1;
}

int count(const Graph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [op](const Node& node) { return node.op == op; }));
}

Image random_image(const Shape& shape) {
  Image image;
  for (const uint8_t pixel : testing::random_pixels(shape, 7)) image.push_back((pixel - 127.5) / 64);
  return image;
}

void expect_same_function(const Graph& graph, const Graph& fused) {
  const FloatParams params = random_params(graph, 3);
  const FloatParams again = random_params(fused, 3);
  EXPECT_EQ(params.size(), again.size());
  for (const auto& [name, values] : params) EXPECT_EQ(again.count(name), 1u) << name;
  const Image image = random_image(graph.nodes[0].shape);
  const Image expected = walk_float(graph, params, image).back();
  const Image actual = walk_float(fused, params, image).back();
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  EXPECT_GT(largest, 0);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-9 * largest) << i;
}

void expect_same_graph(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t n = 0; n < a.nodes.size(); ++n) {
    EXPECT_EQ(a.nodes[n].name, b.nodes[n].name);
    EXPECT_EQ(a.nodes[n].op, b.nodes[n].op);
    EXPECT_EQ(a.nodes[n].inputs, b.nodes[n].inputs);
    EXPECT_EQ(a.nodes[n].batch_norm, b.nodes[n].batch_norm);
    EXPECT_EQ(a.nodes[n].activation, b.nodes[n].activation);
    EXPECT_EQ(a.nodes[n].shape, b.nodes[n].shape);
  }
  EXPECT_EQ(a.outputs, b.outputs);
}

void expect_usage_error(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

struct ZooCase {
  const char* name;
  Shape input;
  char shortcut;
  bool folded;
  int nodes;  ///< after fuse
};

class FuseZoo : public ::testing::TestWithParam<ZooCase> {};

TEST_P(FuseZoo, OneNodeAConvolutionAndTheSameFunction) {
  const ZooCase& c = GetParam();
  ModelSpec spec;
  spec.name = c.name;
  spec.input = c.input;
  spec.shortcut = c.shortcut;
  spec.folded = c.folded;
  const Graph graph = build_model(spec);
  const Graph fused = fuse(graph);
  for (const Op op : {Op::batch_norm, Op::relu, Op::relu6, Op::add, Op::dropout}) {
    EXPECT_EQ(count(fused, op), 0) << op_name(op);
  }
  EXPECT_EQ(count(fused, Op::conv2d), count(graph, Op::conv2d));
  EXPECT_EQ(static_cast<int>(fused.nodes.size()), c.nodes);
  EXPECT_EQ(fused.name, graph.name);
  EXPECT_EQ(fused.classes(), graph.classes());
  expect_same_graph(fuse(fused), fused);
  if (multiply_adds(graph) < 30'000'000) expect_same_function(graph, fused);
}

// Counts: input, convolutions, max-pools, shortcuts or concats, then pool, flatten and linear.
INSTANTIATE_TEST_SUITE_P(
    Models, FuseZoo,
    ::testing::Values(
        ZooCase{"resnet8", {3, 32, 32}, 'A', false, 1 + 7 + 2 + 3},
        ZooCase{"resnet8", {3, 16, 16}, 'B', false, 1 + 7 + 2 + 3},
        ZooCase{"resnet20", {3, 16, 16}, 'A', false, 1 + 19 + 2 + 3},
        ZooCase{"resnet56", {3, 8, 8}, 'A', false, 1 + 55 + 2 + 3},  //
        ZooCase{"resnet18", {3, 224, 224}, 'B', false, 1 + 20 + 1 + 3},
        ZooCase{"resnet34", {3, 224, 224}, 'B', false, 1 + 36 + 1 + 3},
        ZooCase{"resnet50", {3, 224, 224}, 'B', false, 1 + 53 + 1 + 3},
        ZooCase{"mobilenet_v2", {3, 32, 32}, 'B', false, 1 + 52 + 3},
        ZooCase{"mobilenet_v2", {3, 32, 32}, 'B', true, 1 + 52 + 3},
        // with squeeze-and-excite 6 more, or 5 with its relu; 1 a function
        ZooCase{"efficientnet_b0", {3, 32, 32}, 'B', false, 1 + 2 + 9 + 15 * 11 + 2 + 3},
        ZooCase{"mobilenet_v3_large", {3, 32, 32}, 'B', false, 1 + 2 + (2 + 2 * 3) + 3 * 8 + 4 * 5 + 5 * 10 + 2 + 5},
        ZooCase{"squeezenet1_1", {3, 64, 64}, 'B', false, 1 + 26 + 8 + 3 + 1}),
    [](const auto& info) {
      return std::string(info.param.name) + "_" + std::to_string(info.param.input.h) + info.param.shortcut +
             (info.param.folded ? "_folded" : "");
    });

/// An output is read from outside: nothing is merged into it that would change what it gives.
TEST(Fuse, OutputsKeepTheirValues) {
  const std::vector<NodeSpec> nodes = {{"a", "conv2d", {}, {{"out_channels", 4}}},
                                       {"r", "relu", {}, {}},
                                       {"b", "conv2d", {}, {{"out_channels", 4}}},
                                       {"s", "add", {"b", "r"}, {}},
                                       {"g", "global_avg_pool", {}, {}},
                                       {"d", "dropout", {}, {{"dropout", 0}}},
                                       {"f", "flatten", {}, {}}};
  const auto fused = [&](const std::vector<int>& outputs) {
    Graph graph = graph_of(nodes);
    graph.outputs = outputs;
    const Graph result = fuse(graph);
    const FloatParams params = testing::random_params(graph, 5);
    const Image image = random_image(graph.nodes[0].shape);
    const auto before = walk_float(graph, params, image), after = walk_float(result, params, image);
    std::string names;
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(before[outputs[i]], after[result.outputs[i]]) << nodes[outputs[i] - 1].name;
      names += result.nodes[result.outputs[i]].name + " ";
    }
    expect_same_graph(fuse(result), result);
    return names;
  };
  EXPECT_EQ(fused({7}), "g ");
  EXPECT_EQ(fused({7, 2}), "g a ");
  EXPECT_EQ(fused({1, 7}), "a g ");
  EXPECT_EQ(fused({7, 3, 1, 2}), "g b a r ");
  expect_usage_error([&] { fused({5, 7}); }, "output 'f' is another output once more");
  expect_usage_error([&] { fused({2}); }, "nothing reads node 'f'");
}

TEST(Fuse, EveryZooModelLosesBatchNormAndActivations) {
  for (const std::string_view name : model_names()) {
    ModelSpec spec;
    spec.name = name;
    const Graph fused = fuse(build_model(spec));
    for (const Op op : {Op::batch_norm, Op::relu, Op::relu6, Op::dropout}) EXPECT_EQ(count(fused, op), 0) << name;
    EXPECT_NO_THROW(prepare(fused, {})) << name;
  }
}

TEST(Fuse, TheLaterConvolutionTakesTheAdd) {
  const Graph graph = graph_of({conv("a"),
                                {"bn", "batch_norm", {}, {}},
                                conv("b", {"input"}),
                                {"sum", "add", {"b", "bn"}, {}},
                                {"act", "relu", {}, {}}});
  const Graph fused = fuse(graph);
  ASSERT_EQ(fused.nodes.size(), 3u);
  EXPECT_EQ(fused.nodes[1].name, "a");
  EXPECT_EQ(fused.nodes[1].batch_norm, "bn");
  EXPECT_EQ(fused.nodes[1].activation, Activation::none);
  EXPECT_EQ(fused.nodes[2].name, "b");
  EXPECT_EQ(fused.nodes[2].inputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(fused.nodes[2].activation, Activation::relu);
  expect_same_function(graph, fused);
}

TEST(Fuse, AResidualComputedAfterItsConvolutionStandsBeforeIt) {
  const Graph graph = graph_of({conv("a"),
                                {"short", "subsample_pad", {"input"}, {{"out_channels", 4}, {"stride", 1}}},
                                {"sum", "add", {"a", "short"}, {}}});
  const Graph fused = fuse(graph);
  ASSERT_EQ(fused.nodes.size(), 3u);
  EXPECT_EQ(fused.nodes[1].name, "short");
  EXPECT_EQ(fused.nodes[2].inputs, (std::vector<int>{0, 1}));
  expect_same_function(graph, fused);
}

TEST(Fuse, AConvolutionReadTwiceKeepsItsEdge) {
  const Graph graph = graph_of({conv("a"), {"act", "relu", {"a"}, {}}, {"sum", "add", {"a", "act"}, {}}});
  const Graph fused = fuse(graph);
  EXPECT_EQ(count(fused, Op::add), 1);
  EXPECT_EQ(count(fused, Op::relu), 1);
  EXPECT_EQ(fused.nodes[index_of(fused, "a")].activation, Activation::none);
  expect_same_function(graph, fused);
}

TEST(Fuse, AConvolutionAddedToItselfStaysAnAdd) {
  const Graph graph = graph_of({conv("a"), {"sum", "add", {"a", "a"}, {}}});
  const Graph fused = fuse(graph);
  EXPECT_EQ(count(fused, Op::add), 1);
  expect_same_function(graph, fused);
}

TEST(Fuse, ActivationsJoinAddsConcatsAndAveragePools) {
  const Graph graph = graph_of({conv("a"),
                                {"ra", "relu", {}, {}},
                                {"sum", "add", {"ra", "input"}, {}},
                                {"rs", "relu6", {}, {}},
                                {"cat", "concat", {"rs", "ra"}, {}},
                                {"rc", "relu", {}, {}},
                                {"pool", "avg_pool", {}, {{"kernel", 2}, {"stride", 2}}},
                                {"rp", "relu6", {}, {}}});
  const Graph fused = fuse(graph);
  EXPECT_EQ(fused.nodes.size(), 5u);
  EXPECT_EQ(fused.nodes[index_of(fused, "sum")].activation, Activation::relu6);
  EXPECT_EQ(fused.nodes[index_of(fused, "cat")].activation, Activation::relu);
  EXPECT_EQ(fused.nodes[index_of(fused, "pool")].activation, Activation::relu6);
  expect_same_function(graph, fused);
}

TEST(Fuse, AReluBesideARelu6ChangesNothing) {
  for (const auto& [first, second] : {std::pair{"relu", "relu6"}, {"relu6", "relu"}}) {
    const Graph fused = fuse(graph_of({conv("a"), {"first", first, {}, {}}, {"second", second, {}, {}}}));
    ASSERT_EQ(fused.nodes.size(), 2u);
    EXPECT_EQ(fused.nodes[1].activation, Activation::relu6) << first;
  }
}

TEST(Fuse, AnActivationMovesInFrontOfAMaxPool) {
  const Graph graph =
      graph_of({conv("a"), {"pool", "max_pool", {}, {{"kernel", 2}, {"stride", 2}}}, {"act", "relu6", {}, {}}});
  const Graph fused = fuse(graph);
  ASSERT_EQ(fused.nodes.size(), 3u);
  EXPECT_EQ(fused.nodes[1].activation, Activation::relu6);
  EXPECT_EQ(fused.nodes[2].activation, Activation::none);
  expect_same_function(graph, fused);
}

TEST(Fuse, RefusesABatchNormItCannotFold) {
  const NodeSpec bn{"bn", "batch_norm", {}, {}};
  expect_usage_error([&] { fuse(graph_of({conv("a"), {"act", "relu", {}, {}}, bn})); }, "'bn' cannot be folded");
  expect_usage_error([&] { fuse(graph_of({bn, conv("a")})); }, "is a input");
  expect_usage_error([&] { fuse(graph_of({conv("a"), bn, {"bn2", "batch_norm", {}, {}}})); }, "already has 'bn'");
  expect_usage_error([&] { fuse(graph_of({conv("a"), bn, {"sum", "add", {"a", "bn"}, {}}})); }, "has other consumers");
}

TEST(Fuse, RefusesANodeNobodyReads) {
  expect_usage_error([] { fuse(graph_of({conv("a"), conv("b", {"input"})})); }, "nothing reads node 'a'");
}

}  // namespace
}  // namespace octet
