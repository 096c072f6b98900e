// SPDX-License-Identifier: Apache-2.0
#include "src/quant/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "src/base/error.h"
#include "src/net/op_traits.h"
#include "src/net/zoo.h"
#include "src/quant/calibrate.h"
#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "tests/quant/quantized_network.h"
#include "tests/quant/walks.h"

namespace octet {
namespace {

using testing::graph_of;
using testing::Image;
using testing::preprocessing_of;
using Network = testing::QuantizedNetwork;

constexpr std::array kSchemes = {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                 ActivationScheme::affine_u8};

void expect_error(ExitCode code, const std::string& part, const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

double squares(const Image& image) {
  double sum = 0;
  for (const double value : image) sum += value * value;
  return sum;
}

/// All ops, both sides of an add as convolutions, a concat, standalone activations, a flatten of 2x3 pixels.
Graph everything() {
  const auto conv = [](const std::string& name, std::vector<std::string> inputs, double channels, double kernel) {
    return NodeSpec{
        name, "conv2d", std::move(inputs), {{"out_channels", channels}, {"kernel", kernel}, {"pad", (kernel - 1) / 2}}};
  };
  const auto unary = [](const std::string& name, const std::string& op) { return NodeSpec{name, op, {}, {}}; };
  return graph_of({conv("stem", {}, 6, 3),
                   unary("stem.bn", "batch_norm"),
                   unary("stem.relu", "relu"),
                   {"dw", "conv2d", {}, {{"out_channels", 6}, {"kernel", 3}, {"pad", 1}, {"groups", 6}, {"bias", 1}}},
                   unary("dw.relu6", "relu6"),
                   conv("left", {}, 8, 1),
                   {"left.bn", "batch_norm", {}, {{"epsilon", 0.125}}},
                   conv("right", {"stem.relu"}, 8, 3),
                   unary("right.bn", "batch_norm"),
                   {"join", "add", {"left.bn", "right.bn"}, {}},  // read twice below: its relu stays a node
                   unary("join.relu", "relu"),
                   {"sum", "add", {"join", "join.relu"}, {}},
                   {"short", "subsample_pad", {"sum"}, {{"out_channels", 12}, {"stride", 2}}},
                   {"pool", "max_pool", {"sum"}, {{"kernel", 3}, {"stride", 2}, {"pad", 1}}},
                   {"cat", "concat", {"pool", "short"}, {}},
                   {"avg", "avg_pool", {}, {{"kernel", 2}, {"stride", 1}}},
                   unary("silu", "silu"),
                   unary("gelu", "gelu"),
                   unary("gap", "global_avg_pool"),
                   unary("gate", "sigmoid"),
                   {"excite", "mul", {"gelu", "gate"}, {}},
                   {"square", "mul", {"excite", "silu"}, {}},
                   unary("flat", "flatten"),
                   unary("drop", "dropout"),
                   {"fc", "linear", {}, {{"out_channels", 5}, {"bias", 1}}}},
                  {3, 6, 8});
}

TEST(Fold, EqualsTheFormulaInDouble) {
  const Node node{.name = "c", .op = Op::conv2d, .out_channels = 4, .bias = true, .batch_norm = "b"};
  const FloatParams params{{"c.bias", {0.5f, -1, 2, 0}},
                           {"b.weight", {1.5f, -0.75f, 0, 1e-20f}},  // negative and zero gains
                           {"b.bias", {0.1f, 0.2f, -0.3f, 0.4f}},
                           {"b.running_mean", {0.3f, -0.6f, 5, 0}},
                           {"b.running_var", {4, 0.01f, 0, 1}}};
  const Folded folded = fold(node, params, 0.02f, {0.003f, 0.004f, 0.005f, 0.006f}, 0.05f);
  // Channel 0: g = 1.5 / sqrt(4.00001) = 0.749999063; 0.02 * 0.003 * g / 0.05 and (0.1 + (0.5 - 0.3) * g) / 0.05.
  EXPECT_FLOAT_EQ(folded.multiplier[0], 8.99998875e-4f);
  EXPECT_FLOAT_EQ(folded.bias[0], 4.99999625f);
  // Channel 1: g = -0.75 / sqrt(0.01001) = -7.496254; (0.2 + (-1 + 0.6) * g) / 0.05.
  EXPECT_FLOAT_EQ(folded.multiplier[1], static_cast<float>(0.02 * 0.004 * -0.75 / std::sqrt(0.01001) / 0.05));
  EXPECT_NEAR(folded.bias[1], 63.970030, 1e-4);
  EXPECT_EQ(folded.multiplier[2], 0);
  EXPECT_FLOAT_EQ(folded.bias[2], -6);
  EXPECT_NEAR(folded.multiplier[3], 2.4e-23, 1e-27);
}

TEST(Fold, WithoutBatchNormOrBias) {
  const Node node{.name = "c", .op = Op::linear, .out_channels = 1};
  const Folded folded = fold(node, {}, 0.5f, {0.25f}, 1.0f);
  EXPECT_EQ(folded.multiplier, std::vector<float>{0.125f});
  EXPECT_EQ(folded.bias, std::vector<float>{0.0f});
}

TEST(Fold, RefusesWhatCannotBeStored) {
  Node node{.name = "c", .op = Op::conv2d, .out_channels = 1, .bias = true};
  const auto attempt = [&](const FloatParams& params, float x, std::vector<float> w, float y) {
    return [=] { fold(node, params, x, w, y); };
  };
  const FloatParams good{{"c.bias", {1}}};
  expect_error(ExitCode::data, "'c.bias' is missing", attempt({}, 1, {1}, 1));
  expect_error(ExitCode::data, "'c.bias' has 2 values, expected 1", attempt({{"c.bias", {1, 2}}}, 1, {1}, 1));
  expect_error(ExitCode::promise, "'c': input scale", attempt(good, 0, {1}, 1));
  expect_error(ExitCode::promise, "'c': weight scale", attempt(good, 1, {NAN}, 1));
  expect_error(ExitCode::promise, "'c': output scale", attempt(good, 1, {1}, INFINITY));
  expect_error(ExitCode::promise, "2 weight scales for 1 channels", attempt(good, 1, {1, 1}, 1));
  expect_error(ExitCode::promise, "bias of channel 0", attempt({{"c.bias", {NAN}}}, 1, {1}, 1));
  expect_error(ExitCode::promise, "multiplier of channel 0", attempt(good, 1e20f, {1e20f}, 1e-3f));
  node.batch_norm = "b";
  expect_error(
      ExitCode::promise, "multiplier of channel 0",
      attempt({{"c.bias", {1}}, {"b.weight", {1}}, {"b.bias", {1}}, {"b.running_mean", {1}}, {"b.running_var", {-1}}},
              1, {1}, 1));
}

TEST(Prepare, RangesAndRootsOfEachScheme) {
  const Graph fused = fuse(everything());
  const auto index = [&](const std::string& name) {
    return static_cast<size_t>(
        std::find_if(fused.nodes.begin(), fused.nodes.end(), [&](const Node& node) { return node.name == name; }) -
        fused.nodes.begin());
  };
  for (const ActivationScheme scheme : kSchemes) {
    QuantSpec six_bits = uniform_bits(6, 8);
    six_bits.activation = scheme;
    const Prepared p = prepare(fused, six_bits);
    for (const auto& [name, nonnegative] : {std::pair{"input", false},
                                            {"stem", true},
                                            {"dw", true},
                                            {"left", false},
                                            {"join.relu", true},
                                            {"sum", false},
                                            {"cat", false},
                                            {"gate", true},
                                            {"excite", false},
                                            {"flat", false}}) {
      const size_t n = index(name);
      EXPECT_EQ(p.nonnegative[n], nonnegative) << name;
      const bool is_signed =
          scheme == ActivationScheme::symmetric_s8 || (scheme == ActivationScheme::unsigned_u8 && !nonnegative);
      EXPECT_EQ(p.range[n].quant_min, is_signed ? -32 : 0) << name;
      EXPECT_EQ(p.range[n].quant_max, is_signed ? 31 : 63) << name;
      EXPECT_EQ(p.affine[n], scheme == ActivationScheme::affine_u8) << name;
    }
    EXPECT_EQ(p.root[index("short")], static_cast<int>(index("sum")));
    EXPECT_EQ(p.root[index("pool")], static_cast<int>(index("sum")));
    EXPECT_EQ(p.root[index("flat")], static_cast<int>(index("square")));
    EXPECT_EQ(p.root[index("cat")], static_cast<int>(index("cat")));
    EXPECT_TRUE(p.float_output(static_cast<int>(index("fc"))));
  }
}

/// Floats come from an operator that computes, that nothing activates and nobody else reads.
TEST(Prepare, OutputsAreFloatsOrCodes) {
  const auto floats = [](const std::vector<NodeSpec>& nodes, const std::vector<int>& outputs) {
    Graph graph = graph_of(nodes);
    graph.outputs = outputs;
    const Prepared prepared = prepare(fuse(graph), {});
    std::string text;
    for (const int output : prepared.graph.outputs) {
      text += prepared.graph.nodes[output].name + (prepared.float_output(output) ? " float " : " codes ");
    }
    return text;
  };
  const NodeSpec a{"a", "conv2d", {}, {{"out_channels", 4}}}, b{"b", "conv2d", {"a"}, {{"out_channels", 3}}};
  EXPECT_EQ(floats({a}, {1}), "a float ");
  EXPECT_EQ(floats({a, {"r", "relu", {}, {}}}, {2}), "a codes ");
  EXPECT_EQ(floats({a, {"p", "max_pool", {}, {{"kernel", 2}}}}, {2}), "p codes ");
  EXPECT_EQ(floats({a, {"l", "silu", {}, {}}}, {2}), "l codes ");
  EXPECT_EQ(floats({a, {"m", "mul", {"a", "a"}, {}}}, {2}), "m float ");
  EXPECT_EQ(floats({a, b}, {2, 1}), "b float a codes ");
  EXPECT_EQ(floats({a, b, {"s", "add", {"a", "a"}, {}}}, {3, 2}), "s float b float ");
  EXPECT_EQ(floats({a, {"r", "relu", {}, {}}}, {2, 1}), "r codes a codes ");  // the relu stays apart
}

TEST(Prepare, RefusesWhatHasNoInt8Form) {
  const auto refuse = [](const std::string& part, const std::vector<NodeSpec>& nodes, const QuantSpec& spec = {}) {
    expect_error(ExitCode::usage, part, [&] { prepare(fuse(graph_of(nodes)), spec); });
  };
  const NodeSpec flat{"flat", "flatten", {}, {}}, fc{"fc", "linear", {}, {{"out_channels", 3}}};
  refuse("reads the flatten 'flat' of more than one pixel", {flat, {"conv", "conv2d", {}, {{"out_channels", 3}}}});
  refuse("quant.activation_bits: 9", {flat, fc}, {.activation_bits = 9});
  refuse("quant.weight_bits: 1", {flat, fc}, {.weight_bits = 1});
  expect_error(ExitCode::usage, "call fuse first", [] { prepare(everything(), {}); });
}

TEST(Convert, IntegersFollowTheFloatNetwork) {
  for (const ActivationScheme scheme : kSchemes) {
    for (const Granularity granularity : {Granularity::per_channel, Granularity::per_tensor}) {
      const Network network(everything(), {.activation = scheme, .weight_granularity = granularity});
      const auto expected = testing::walk_float(network.prepared.graph, network.params, network.image());
      const auto actual = testing::walk_int8(network.converted(), network.pixels);
      for (size_t n = 0; n < expected.size(); ++n) {
        if (network.prepared.graph.nodes[n].op == Op::flatten) continue;  // HWC order here, CHW there
        Image noise = actual[n];
        for (size_t i = 0; i < noise.size(); ++i) noise[i] -= expected[n][i];
        EXPECT_LT(squares(noise), squares(expected[n]) * 1e-3) << network.prepared.graph.nodes[n].name;  // 30 dB
      }
    }
  }
}

/// A simulation in double rounds likewise, with BatchNorm, add and ReLU as separate steps: a code differs only where
/// double and float round a value half-way differently, and then by one.
TEST(Convert, CodesEqualADoubleSimulation) {
  for (const ActivationScheme scheme : kSchemes) {
    for (const int bits : {2, 4, 8}) {
      QuantSpec spec = uniform_bits(bits, bits);
      spec.activation = scheme;
      const Network network(everything(), spec);
      const Graph& graph = network.prepared.graph;
      const Int8Graph int8 = network.converted();
      const auto actual = testing::walk_int8(int8, network.pixels);
      FloatParams params = network.params;
      for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
        if (!has_weight(graph.nodes[n].op)) continue;
        const std::vector<float>& scales = network.scales.at(graph.nodes[n].name);
        std::vector<float>& weight = params[graph.nodes[n].name + ".weight"];
        const size_t row = weight.size() / scales.size();
        for (size_t i = 0; i < weight.size(); ++i) {
          const QParams q = network.prepared.weight_codes(n).qparams(scales[i / row]);
          weight[i] = dequantize(quantize(weight[i], q), q);
        }
      }
      int differing = 0, total = 0;
      testing::walk_float(graph, params, network.image(), [&](int n, Image& output) {
        const Op op = graph.nodes[n].op;
        if (op == Op::flatten || network.prepared.float_output(n)) return;
        const QParams& q = network.edges[network.prepared.root[n]];
        for (size_t i = 0; i < output.size(); ++i) {
          const double code = std::clamp(std::nearbyint(output[i] / q.scale) + q.zero_point,
                                         static_cast<double>(q.quant_min), static_cast<double>(q.quant_max));
          const double real = q.scale * (code - q.zero_point);
          EXPECT_LE(std::fabs(real - actual[n][i]), q.scale * 1.01) << graph.nodes[n].name;
          differing += std::fabs(real - actual[n][i]) > q.scale * 0.5;
          ++total;
          output[i] = actual[n][i];  // so that a half-way case stays in its own node
        }
      });
      EXPECT_GT(total, 2000);
      EXPECT_LE(differing, total / 500) << bits;
    }
  }
}

TEST(Convert, LinearColumnsFollowTheFlattenedPixels) {
  const Graph graph =
      graph_of({{"flat", "flatten", {}, {}}, {"fc", "linear", {}, {{"out_channels", 2}, {"bias", 1}}}}, {2, 1, 3});
  Network network(graph, {});
  network.params["fc.weight"] = {1, 2, 3, 4, 5, 6, -6, -5, -4, -3, -2, -1};  // [K, C, W]
  network.scales["fc"] = {1, 1};
  EXPECT_EQ(network.converted().nodes[2].weight, (std::vector<int8_t>{1, 4, 2, 5, 3, 6, -6, -3, -5, -2, -4, -1}));
}

TEST(Convert, ConvolutionWeightsBecomeChannelsLast) {
  const Graph graph = graph_of({{"conv", "conv2d", {}, {{"out_channels", 1}, {"kernel", 2}}}}, {2, 2, 2});
  Network network(graph, {});
  network.params["conv.weight"] = {1, 2, 3, 4, 5, 6, 7, 300};  // [C, R, S]; the last one saturates
  network.scales["conv"] = {1};
  EXPECT_EQ(network.converted().nodes[1].weight, (std::vector<int8_t>{1, 5, 2, 6, 3, 7, 4, 127}));
}

TEST(Convert, ActivationsBecomeClamps) {
  const Graph graph = graph_of({{"a", "conv2d", {}, {{"out_channels", 2}}},
                                {"ra", "relu", {}, {}},
                                {"b", "conv2d", {}, {{"out_channels", 2}}},
                                {"rb", "relu6", {}, {}},
                                {"pool", "global_avg_pool", {}, {}}});
  Network network(graph, {.activation = ActivationScheme::affine_u8});
  network.edges[1] = {0.1f, 10, 0, 255};
  network.edges[2] = {0.05f, 4, 0, 255};
  const Int8Graph int8 = network.converted();
  EXPECT_EQ(int8.nodes[1].clamp_min, 10);
  EXPECT_EQ(int8.nodes[1].clamp_max, 255);
  EXPECT_EQ(int8.nodes[2].clamp_min, 4);
  EXPECT_EQ(int8.nodes[2].clamp_max, 124);  // 6 / 0.05 + 4
  EXPECT_TRUE(int8.nodes[3].float_output);
  EXPECT_FLOAT_EQ(int8.nodes[3].multiplier[0], 0.05f / 36);
}

TEST(Convert, AveragesDivideByTheirPixelsAlsoWhereTheyAreNotSquare) {
  Graph graph = graph_of({{"avg", "avg_pool", {}, {{"kernel", 2}, {"stride", 1}}}, {"gap", "global_avg_pool", {}, {}}},
                         {2, 4, 6});
  graph.nodes[1].window.kernel_w = 3;
  Network network(graph, {});
  network.edges[0] = {0.5f, 0, 0, 255};
  network.edges[1] = {0.25f, 0, 0, 255};
  const Int8Graph int8 = network.converted();
  EXPECT_EQ(int8.nodes[1].shape, (Shape{2, 3, 4}));
  EXPECT_FLOAT_EQ(int8.nodes[1].multiplier[0], 0.5f / (2 * 3) / 0.25f);
  EXPECT_FLOAT_EQ(int8.nodes[2].multiplier[0], 0.25f / (3 * 4));
}

TEST(Convert, EdgesChangeAsIfConvertedWithThem) {
  Network network(everything(), {});
  Int8Graph graph = network.converted();
  const Int8Graph before = graph;
  for (size_t n = 0; n < network.edges.size(); ++n)
    if (network.prepared.has_edge(static_cast<int>(n))) {
      network.edges[n].scale *= 1 + 0.01f * static_cast<float>(n + 1);
      network.edges[n].zero_point = (network.edges[n].zero_point + 3) % 256;
    }
  FloatParams small = network.params;
  for (const Node& node : network.prepared.graph.nodes)
    if (has_weight(node.op)) small.erase(node.name + ".weight");
  change_edges(graph, network.prepared, small, network.edges);
  const Int8Graph wanted = network.converted();
  ASSERT_EQ(graph.nodes.size(), wanted.nodes.size());
  for (size_t n = 0; n < wanted.nodes.size(); ++n) {
    const Int8Node &is = graph.nodes[n], &right = wanted.nodes[n];
    EXPECT_EQ(is.out, right.out) << right.name;
    EXPECT_EQ(is.multiplier, right.multiplier) << right.name;
    EXPECT_EQ(is.bias, right.bias) << right.name;
    EXPECT_EQ(is.residual_multiplier, right.residual_multiplier) << right.name;
    EXPECT_EQ(is.table, right.table) << right.name;
    EXPECT_EQ(is.clamp_min, right.clamp_min) << right.name;
    EXPECT_EQ(is.clamp_max, right.clamp_max) << right.name;
    EXPECT_EQ(is.weight, right.weight) << right.name;
    EXPECT_EQ(is.weight_scale, right.weight_scale) << right.name;
    EXPECT_EQ(is.weight_bits, right.weight_bits) << right.name;
    EXPECT_EQ(is.inputs, right.inputs) << right.name;
    if (has_weight(right.op)) EXPECT_NE(is.multiplier, before.nodes[n].multiplier) << right.name;
  }
}

TEST(Convert, RefusesBrokenScalesByNode) {
  const Network good(everything(), {});
  const auto refuse = [&](ExitCode code, const std::string& part, const std::function<void(Network&)>& damage) {
    Network bad = good;
    damage(bad);
    expect_error(code, part, [&] { bad.converted(); });
  };
  refuse(ExitCode::promise, "output of 'stem'", [](Network& n) { n.edges[1].scale = 0; });
  refuse(ExitCode::promise, "output of 'stem'", [](Network& n) { n.edges[1].scale = NAN; });
  refuse(ExitCode::promise, "output of 'stem'", [](Network& n) { n.edges[1].quant_max = 127; });
  refuse(ExitCode::promise, "output of 'stem'", [](Network& n) { n.edges[1].zero_point = 256; });
  refuse(ExitCode::promise, "qparams of 1 edges", [](Network& n) { n.edges.resize(1); });
  refuse(ExitCode::promise, "'stem': weight scale", [](Network& n) { n.scales["stem"][2] = INFINITY; });
  refuse(ExitCode::promise, "'stem': a weight is not finite", [](Network& n) { n.params["stem.weight"][0] = NAN; });
  refuse(ExitCode::data, "'stem.weight' is missing", [](Network& n) { n.params.erase("stem.weight"); });
  refuse(ExitCode::data, "'stem.weight' has", [](Network& n) { n.params["stem.weight"].pop_back(); });
}

}  // namespace
}  // namespace octet
