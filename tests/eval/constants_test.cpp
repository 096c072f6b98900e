// SPDX-License-Identifier: Apache-2.0
// The second derivation of an int8 network's constants: it agrees with convert on every network, and sees what convert,
// fold and the tables could do wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "src/base/error.h"
#include "src/eval/derive_constants.h"
#include "src/eval/derived_values.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/quant/quantized_network.h"
#include "tests/quant/random_plan.h"

namespace octet {
namespace {

using testing::graph_of;
using testing::preprocessing_of;
using testing::QuantizedNetwork;

DerivedConstants derived(const QuantizedNetwork& network, const Int8Graph& graph) {
  const Preprocessing preprocessing = preprocessing_of(network.written);
  return derive_constants({.written = network.written,
                           .prepared = network.prepared,
                           .params = network.params,
                           .weight_scales = network.scales,
                           .edges = network.edges,
                           .preprocessing = preprocessing},
                          graph);
}

TEST(Constants, NoneIsWrongInRandomNetworks) {
  std::set<Op> seen;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Graph graph = test::random_graph(seed, 30);
    const QuantizedNetwork network(graph, test::random_quant(graph, seed), seed);
    const DerivedConstants constants = derived(network, network.converted());
    EXPECT_TRUE(constants.derived);
    EXPECT_EQ(constants.wrong, 0) << "seed " << seed << ": " << describe(constants);
    for (const Node& node : network.prepared.graph.nodes) seen.insert(node.op);
  }
  for (const Op op : all_ops()) {
    if (op != Op::batch_norm && op != Op::dropout) {
      EXPECT_TRUE(seen.contains(op)) << op_name(op);
    }
  }
}

TEST(Constants, NoneIsWrongInTheModelsOfTheZoo) {
  int seen = 0;
  for (const std::string_view name : model_names()) {
    const int side = name.starts_with("vgg") ? 32 : 64;  // which it takes without an ImageNet's stem
    const Graph graph = build_model({.name = std::string(name), .input = {3, side, side}});
    if (multiply_adds(graph) > 60'000'000) continue;  // the slow walk that gives the ranges
    const QuantizedNetwork network(graph, {}, 5);
    const DerivedConstants constants = derived(network, network.converted());
    EXPECT_EQ(constants.wrong, 0) << name << ": " << describe(constants);
    ++seen;
  }
  EXPECT_GE(seen, 5);
}

NodeSpec node(const std::string& name, const std::string& op, std::vector<std::string> inputs = {},
              std::map<std::string, double> attributes = {}) {
  NodeSpec spec{name, op, std::move(inputs), {}};
  for (const auto& [key, value] : attributes) spec.attributes[key] = value;
  return spec;
}

/// Every kind of constant, with scales that are no powers of two and no two alike.
Graph every_constant() {
  Graph graph = graph_of({node("conv", "conv2d", {}, {{"out_channels", 6}, {"kernel", 3}, {"pad", 1}, {"bias", 1}}),
                          node("bn", "batch_norm", {}, {{"epsilon", 0.01}}),
                          node("six", "relu6"),
                          node("plain", "conv2d", {}, {{"out_channels", 6}, {"bias", 1}}),
                          node("silu", "silu"),
                          node("swish", "hard_swish", {"plain"}),
                          node("leaky", "leaky_relu", {"plain"}),
                          node("gelu", "gelu", {"plain"}),
                          node("mish", "mish", {"plain"}),
                          node("elu", "elu", {"mish"}),
                          node("softplus", "softplus", {"elu"}),
                          node("tanh", "tanh", {"softplus"}),
                          node("sum", "add", {"silu", "swish"}),
                          node("cat", "concat", {"sum", "leaky", "tanh"}),
                          node("other", "conv2d", {"gelu"}, {{"out_channels", 18}}),
                          node("last", "conv2d", {"cat"}, {{"out_channels", 18}, {"kernel", 1}}),
                          node("joined", "add", {"last", "other"}),  // of which `last` takes the residual
                          node("slopes", "prelu", {}, {{"groups", 9}}),
                          node("avg", "avg_pool", {}, {{"kernel", 2}, {"stride", 2}}),
                          node("up", "resize_bilinear", {}, {{"factor", 2}}),
                          node("scores", "matmul", {"up", "up"}, {{"transposed", 1}, {"scale", 0.35}}),
                          node("shares", "softmax"),
                          node("mixed", "matmul", {"shares", "up"}),
                          node("gap", "global_avg_pool"),
                          node("gate", "sigmoid"),
                          node("excite", "mul", {"mixed", "gate"}),
                          node("flat", "flatten"),
                          node("fc", "linear", {}, {{"out_channels", 5}, {"bias", 1}})},
                         {4, 6, 4});
  for (Node& node : graph.nodes)
    if (node.name == "gelu") node.groups = node.shape.c;
  return graph;
}

class PlantedFault : public ::testing::Test {
 protected:
  PlantedFault() {
    QuantSpec spec;
    spec.activation = ActivationScheme::affine_u8;
    network_.emplace(every_constant(), spec);
    good_ = network_->converted();
  }

  Int8Node& at(Int8Graph& graph, const std::string& name) const {
    return *std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Int8Node& n) { return n.name == name; });
  }
  Node& at(Graph& graph, const std::string& name) const {
    return *std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.name == name; });
  }

  /// `graph` has this wrong, and names the node.
  void expect_wrong(const Int8Graph& graph, const std::string& node, const std::string& what) const {
    const DerivedConstants constants = derived(*network_, graph);
    EXPECT_GT(constants.wrong, 0) << node << ": " << what;
    const bool named = std::any_of(constants.first.begin(), constants.first.end(),
                                   [&](const WrongConstant& w) { return w.node == node && w.what == what; });
    EXPECT_TRUE(named) << what << " of " << node << " is not in: " << describe(constants);
  }
  /// Applies the fault to a copy of the int8 network.
  void changed(const std::string& node, const std::string& what, const std::function<void(Int8Node&)>& change) const {
    Int8Graph graph = good_;
    change(at(graph, node));
    expect_wrong(graph, node, what);
  }
  /// Applies the fault to what convert() is given: the int8 network is what a faulty convert() would make.
  void converted(const std::string& node, const std::string& what,
                 const std::function<void(QuantizedNetwork&)>& change) const {
    QuantizedNetwork faulty = *network_;
    change(faulty);
    expect_wrong(faulty.converted(), node, what);
  }

  std::optional<QuantizedNetwork> network_;
  Int8Graph good_;
};

TEST_F(PlantedFault, TheNetworkWithoutAFaultHasEveryKindOfConstant) {
  const DerivedConstants constants = derived(*network_, good_);
  EXPECT_EQ(constants.wrong, 0) << describe(constants);
  EXPECT_TRUE(constants.first.empty());
  // conv, plain, other, last, fc have a multiplier and a bias a channel, last a residual's; then add 2, concat 3, and
  // one each of avg, up, scores, shares, mixed, gap, excite, of slopes one more than it has, and two a channel of the
  // lookup with a table for each of its six.
  EXPECT_EQ(at(const_cast<Int8Graph&>(good_), "last").inputs.size(), 2u);
  EXPECT_EQ(constants.multipliers, 2 * (6 + 6 + 18 + 18 + 5) + 1 + 2 + 3 + 7 + (1 + 9) + 2 * 6);
  EXPECT_EQ(constants.table_entries, 256 * (4 + 8 + 6 + 1));  // pixels of 4 channels, 6 lookups, exponentials
  EXPECT_EQ(constants.weights, 6 * 4 * 9 + 6 * 6 + 18 * 6 + 18 * 18 + 5 * 18 * 24 + (6 + 6 + 18 + 18 + 5));
  EXPECT_EQ(constants.edges, 6 * static_cast<long>(good_.nodes.size() - 1));  // fc gives floats
}

/// Scales as a Q/DQ file has them, which has no multipliers: a scale that is wrong either way is still found.
TEST_F(PlantedFault, AWeightScaleMayHaveBatchNormsFactorInIt) {
  Int8Graph graph = good_;
  Int8Node& conv = at(graph, "conv");
  const float before = conv.weight_scale[1];
  const double x_scale = network_->edges[static_cast<size_t>(conv.inputs[0])].scale;
  for (size_t k = 0; k < conv.weight_scale.size(); ++k)
    conv.weight_scale[k] = static_cast<float>(conv.multiplier[k] * double{conv.out.scale} / x_scale);
  EXPECT_GT(std::fabs(conv.weight_scale[1] / before - 1), 0.01);
  EXPECT_EQ(derived(*network_, graph).wrong, 0) << describe(derived(*network_, graph));
  conv.weight_scale[1] *= 1.00001f;
  expect_wrong(graph, "conv", "weight scale");
}

TEST_F(PlantedFault, BatchNormFoldedOtherwise) {
  for (const double factor : {0.0, 0.1, 10.0}) {
    converted("conv", "multiplier", [&](QuantizedNetwork& n) { at(n.prepared.graph, "conv").epsilon *= factor; });
    converted("conv", "bias", [&](QuantizedNetwork& n) { at(n.prepared.graph, "conv").epsilon *= factor; });
  }
  converted("conv", "multiplier", [](QuantizedNetwork& n) {
    std::swap(n.params["bn.running_mean"], n.params["bn.running_var"]);
    for (float& v : n.params["bn.running_var"]) v = std::fabs(v) + 0.1f;
  });
  converted("conv", "bias", [](QuantizedNetwork& n) { std::swap(n.params["bn.bias"], n.params["bn.running_mean"]); });
  converted("conv", "bias", [&](QuantizedNetwork& n) { at(n.prepared.graph, "conv").bias = false; });
  converted("fc", "bias", [&](QuantizedNetwork& n) { at(n.prepared.graph, "fc").bias = false; });
  converted("conv", "multiplier", [&](QuantizedNetwork& n) { at(n.prepared.graph, "conv").batch_norm = ""; });
}

/// fuse hands BatchNorm's epsilon and the layer's bias on: what it loses there, the QAT graph loses as well.
TEST_F(PlantedFault, WhatFuseLosesIsReadFromTheNetworkAsItWasWritten) {
  const auto expect_seen = [&](const std::string& what, const std::function<void(Node&)>& lose) {
    QuantizedNetwork faulty = *network_;
    lose(at(faulty.prepared.graph, "conv"));
    const DerivedConstants constants = derived(faulty, faulty.converted());
    EXPECT_NE(describe(constants).find("'conv': " + what), std::string::npos) << describe(constants);
  };
  expect_seen("multiplier 0", [](Node& conv) { conv.epsilon = kBatchNormEpsilon; });
  expect_seen("bias 0", [](Node& conv) { conv.bias = false; });
}

/// A few units in the last place are seen, and roundings are not: the bound is no wider than they are.
TEST_F(PlantedFault, ConstantsAFewUnitsInTheLastPlaceOff) {
  const auto moved = [](float value, int units) {
    for (int i = 0; i < units; ++i) value = std::nextafter(value, INFINITY);
    return value;
  };
  changed("conv", "multiplier", [&](Int8Node& n) { n.multiplier[3] = moved(n.multiplier[3], 3); });
  changed("conv", "bias", [&](Int8Node& n) { n.bias[2] = moved(n.bias[2], 3); });
  changed("sum", "multiplier", [&](Int8Node& n) { n.multiplier[1] = moved(n.multiplier[1], 1); });
  changed("slopes", "multiplier", [&](Int8Node& n) { n.multiplier[0] = moved(n.multiplier[0], 2); });
  changed("slopes", "multiplier", [&](Int8Node& n) { n.multiplier[9] = moved(n.multiplier[9], 2); });
  changed("last", "residual multiplier", [&](Int8Node& n) { n.residual_multiplier = moved(n.residual_multiplier, 1); });
  changed("conv", "multiplier", [](Int8Node& n) { n.multiplier[0] = NAN; });
}

TEST_F(PlantedFault, ScalesOfTheWrongEdge) {
  for (const char* name : {"sum", "cat"})
    changed(name, "multiplier", [](Int8Node& n) { std::swap(n.multiplier[0], n.multiplier[1]); });
  for (const char* name : {"conv", "sum", "avg", "gap", "scores", "shares", "excite", "up", "fc"})
    changed(name, "multiplier", [](Int8Node& n) { n.multiplier[0] = 1 / n.multiplier[0]; });
  changed("avg", "multiplier", [](Int8Node& n) { n.multiplier[0] *= 4; });         // not divided
  changed("gap", "multiplier", [](Int8Node& n) { n.multiplier[0] *= 6.0f / 4; });  // taken for a square
  changed("up", "multiplier", [](Int8Node& n) { n.multiplier[0] *= 4; });
  changed("scores", "multiplier", [](Int8Node& n) { n.multiplier[0] /= 0.35f; });
  changed("last", "residual multiplier", [](Int8Node& n) { n.residual_multiplier = n.multiplier[0]; });
}

TEST_F(PlantedFault, TablesOfAnotherFunctionOrShifted) {
  for (const char* name : {"silu", "swish", "leaky", "gelu", "mish", "elu", "softplus", "tanh", "gate"}) {
    changed(name, "table entry", [](Int8Node& n) { std::rotate(n.table.begin(), n.table.begin() + 1, n.table.end()); });
    converted(name, "table entry", [&](QuantizedNetwork& n) {
      Function& function = at(n.prepared.graph, name).function;
      function.kind = function.kind == FunctionKind::hard_sigmoid ? FunctionKind::silu : FunctionKind::hard_sigmoid;
    });
  }
  converted("leaky", "table entry", [&](QuantizedNetwork& n) { at(n.prepared.graph, "leaky").function.slope *= 2; });
  changed("silu", "table entry", [](Int8Node& n) { n.table[77] ^= 1; });
  changed("gelu", "table entry",
          [](Int8Node& n) { std::rotate(n.table.begin(), n.table.begin() + 256, n.table.end()); });
  for (const int scale : {2, 8})  // of input and output
    changed("gelu", "multiplier", [scale](Int8Node& n) { n.multiplier[scale] *= 1.01f; });
  changed("gelu", "number of multipliers", [](Int8Node& n) { n.multiplier.resize(6); });
  changed("shares", "exponential",
          [](Int8Node& n) { std::rotate(n.exponentials.begin(), n.exponentials.begin() + 1, n.exponentials.end()); });
  changed("shares", "exponential", [](Int8Node& n) { n.exponentials[0] -= 1; });
  changed("shares", "exponential", [&](Int8Node& n) {  // of base 2
    const double scale = network_->edges[static_cast<size_t>(n.inputs[0])].scale;
    for (int d = 0; d < 256; ++d)
      n.exponentials[static_cast<size_t>(d)] = static_cast<int>(std::lround(32768 * std::exp2(-d * scale)));
  });
}

TEST_F(PlantedFault, EdgesAndWeights) {
  changed("sum", "zero point", [](Int8Node& n) { n.out.zero_point = 255 - n.out.zero_point; });
  changed("sum", "scale", [](Int8Node& n) { n.out.scale = std::nextafter(n.out.scale, 1.0f); });
  changed("conv", "upper bound", [](Int8Node& n) { n.clamp_max -= 1; });
  changed("conv", "lower bound", [](Int8Node& n) { n.clamp_min += 1; });
  changed("plain", "weight", [](Int8Node& n) { n.weight[5] = static_cast<int8_t>(n.weight[5] + 1); });
  changed("conv", "weight", [](Int8Node& n) { std::swap(n.weight[0], n.weight[5]); });
  changed("fc", "weight", [](Int8Node& n) { std::rotate(n.weight.begin(), n.weight.begin() + 1, n.weight.end()); });
  changed("fc", "weight scale", [](Int8Node& n) { n.weight_scale[4] *= 2; });
  changed("sum", "number of multipliers", [](Int8Node& n) { n.multiplier.pop_back(); });
  Int8Graph other_mean = good_;
  other_mean.preprocessing.mean[1] += 0.05f;
  expect_wrong(other_mean, "input", "table entry");
}

TEST_F(PlantedFault, AnotherNetworkIsRefused) {
  Int8Graph other = good_;
  other.nodes[3].name = "stranger";
  try {
    derived(*network_, other);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::promise);
    EXPECT_NE(std::string(error.what()).find("its node 3 is 'stranger'"), std::string::npos) << error.what();
  }
}

TEST(DerivedValues, CodesOfWeightsRoundHalfToEven) {
  EXPECT_EQ(nearest_code(2.5f, 1, 0, {-127, 127}), 2);
  EXPECT_EQ(nearest_code(-3.5f, 1, 0, {-127, 127}), -4);
  EXPECT_EQ(nearest_code(6, 0.5f, 100, {0, 110}), 110);
  // The quotient in double is a little above 2.5, in float32 it is 2.5.
  const float value = std::nextafter(2.5f, 3.0f), scale = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(nearest_code(value, scale, 0, {-127, 127}), static_cast<int>(std::rint(value / scale)));
}

TEST(DerivedValues, FunctionsInOtherFormsAreTheSame) {
  for (const Named<FunctionKind>& row : kFunctions)
    for (double x = -40; x <= 40; x += 0.037) {
      const Function function{row.value, 0.3f};
      EXPECT_NEAR(function_value(function, x), evaluate(function, x), 1e-14 * (1 + std::fabs(x)))
          << row.name << " of " << x;
    }
}

}  // namespace
}  // namespace octet
