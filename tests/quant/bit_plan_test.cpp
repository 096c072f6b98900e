// SPDX-License-Identifier: Apache-2.0
#include "src/quant/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "src/base/error.h"
#include "src/base/names.h"
#include "src/net/op_traits.h"
#include "src/net/zoo.h"
#include "tests/quant/walks.h"

namespace octet {
namespace {

using testing::graph_of;

Graph model(const std::string& name) {
  ModelSpec spec;
  spec.name = name;
  return fuse(build_model(spec));
}

/// "weights/edge" of every node by name; "-": it has none.
std::map<std::string, std::string> bits_of(const PlannedGraph& plan) {
  std::map<std::string, std::string> result;
  const auto text = [](int bits) { return bits == 0 ? std::string("-") : std::to_string(bits); };
  for (size_t n = 0; n < plan.graph.nodes.size(); ++n) {
    result[plan.graph.nodes[n].name] = text(plan.bits.weight_bits[n]) + "/" + text(plan.bits.activation_bits[n]);
  }
  return result;
}

using Bits = std::map<std::string, std::string>;

QuantSpec w4a4() { return {.activation_bits = 4, .weight_bits = 4}; }

NodeSpec conv_spec(const std::string& name, std::vector<std::string> inputs, double kernel = 3) {
  return {name, "conv2d", std::move(inputs), {{"out_channels", 4}, {"kernel", kernel}, {"pad", (kernel - 1) / 2}}};
}

const NodeSpec kFlat{"flat", "flatten", {}, {}}, kGap{"gap", "global_avg_pool", {}, {}},
    kFc{"fc", "linear", {}, {{"out_channels", 3}}};

std::string refusal(const Graph& graph, const QuantSpec& spec) {
  try {
    plan_bits(graph, spec);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

void expect_names(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

TEST(BitPlan, EightBitsChangeNothing) {
  for (const std::string_view name : model_names()) {
    const Graph fused = model(std::string(name));
    const PlannedGraph plan = plan_bits(fused, {});
    ASSERT_EQ(plan.graph.nodes.size(), fused.nodes.size()) << name;
    for (size_t n = 0; n < fused.nodes.size(); ++n) {
      EXPECT_EQ(plan.graph.nodes[n].name, fused.nodes[n].name);
      EXPECT_EQ(plan.graph.nodes[n].inputs, fused.nodes[n].inputs);
      EXPECT_EQ(plan.bits.weight_bits[n], has_weight(fused.nodes[n].op) ? 8 : 0);
      const bool output = std::count(fused.outputs.begin(), fused.outputs.end(), static_cast<int>(n)) > 0;
      EXPECT_EQ(plan.bits.activation_bits[n], output ? 0 : 8) << name << " " << fused.nodes[n].name;
    }
  }
}

/// What published W4A4 means: the image, the first and the last layer, and what the last one reads, keep 8 bits.
TEST(BitPlan, ImageFirstAndLastLayerKeepEightBits) {
  const Bits bits = bits_of(plan_bits(model("resnet8"), w4a4()));
  EXPECT_EQ(bits.at("input"), "-/8");
  EXPECT_EQ(bits.at("conv1"), "8/4");
  EXPECT_EQ(bits.at("layer1.0.conv1"), "4/4");
  EXPECT_EQ(bits.at("layer1.0.conv2"), "4/4");
  EXPECT_EQ(bits.at("layer3.0.conv1"), "4/4");
  EXPECT_EQ(bits.at("layer3.0.conv2"), "4/8");  // what the pool before the last layer reads
  EXPECT_EQ(bits.at("avgpool"), "-/8");
  EXPECT_EQ(bits.at("flatten"), "-/8");
  EXPECT_EQ(bits.at("linear"), "8/-");
  QuantSpec own = w4a4();
  own.input_bits = 7, own.first_layer_bits = 6, own.last_layer_bits = 5;
  const Bits others = bits_of(plan_bits(model("resnet8"), own));
  EXPECT_EQ(others.at("input"), "-/7");
  EXPECT_EQ(others.at("conv1"), "6/4");
  EXPECT_EQ(others.at("avgpool"), "-/5");
  EXPECT_EQ(others.at("linear"), "5/-");
}

TEST(BitPlan, SeveralLayersMayReadTheImageAlsoThroughPools) {
  const Graph graph = fuse(graph_of({{"pool", "avg_pool", {}, {{"kernel", 2}}},
                                     conv_spec("a", {"pool"}),
                                     {"small", "max_pool", {"input"}, {{"kernel", 2}}},
                                     conv_spec("b", {"small"}),
                                     {"sum", "concat", {"a", "b"}, {}},
                                     conv_spec("c", {}),
                                     conv_spec("d", {}),
                                     kGap,
                                     kFlat,
                                     kFc}));
  EXPECT_EQ(bits_of(plan_bits(graph, w4a4())), (Bits{{"input", "-/8"},
                                                     {"pool", "-/8"},
                                                     {"a", "8/4"},
                                                     {"small", "-/8"},
                                                     {"b", "8/4"},
                                                     {"sum", "-/4"},
                                                     {"c", "4/4"},
                                                     {"d", "4/8"},
                                                     {"gap", "-/8"},
                                                     {"flat", "-/8"},
                                                     {"fc", "8/-"}}));
}

/// Nothing is lost between the last weights and the logits: SqueezeNet ends in a convolution and a pool.
TEST(BitPlan, LastLayerBeforeAPool) {
  const Graph graph =
      fuse(graph_of({conv_spec("a", {}), conv_spec("b", {}), conv_spec("c", {}), {"relu", "relu", {}, {}}, kGap}));
  EXPECT_EQ(bits_of(plan_bits(graph, w4a4())),
            (Bits{{"input", "-/8"}, {"a", "8/4"}, {"b", "4/8"}, {"c", "8/8"}, {"gap", "-/-"}}));
}

/// Two last layers, whether or not fuse puts the add into one of them.
TEST(BitPlan, BothLastLayersBeforeAnAdd) {
  for (const bool relu : {false, true}) {
    std::vector<NodeSpec> nodes = {
        conv_spec("a", {"input"}), conv_spec("b", {"a"}), conv_spec("c", {"a"}), {"sum", "add", {"b", "c"}, {}}};
    if (relu) nodes.insert(nodes.end() - 1, {"relu", "relu", {"b"}, {}});
    if (relu) nodes.back().inputs[0] = "relu";
    nodes.push_back(kGap);
    const Bits bits = bits_of(plan_bits(fuse(graph_of(nodes)), w4a4()));
    EXPECT_EQ(bits.at("b").substr(0, 1), "8") << relu;
    EXPECT_EQ(bits.at("c").substr(0, 1), "8") << relu;
  }
}

TEST(BitPlan, ConvolutionsReadNarrowCodesOfAWideResidualStream) {
  QuantSpec spec = w4a4();
  spec.residual_bits = 8;
  const PlannedGraph plan = plan_bits(model("resnet8"), spec);
  const Bits bits = bits_of(plan);
  EXPECT_EQ(bits.at("conv1"), "8/8");  // read by layer1.0's add and its first convolution
  EXPECT_EQ(bits.at("conv1.requantize"), "-/4");
  EXPECT_EQ(bits.at("layer1.0.conv1"), "4/4");
  EXPECT_EQ(bits.at("layer1.0.conv2"), "4/4");       // read by convolutions only: layer2 has a shortcut convolution
  EXPECT_EQ(bits.at("layer2.0.shortcut.0"), "4/8");  // read by an add only
  EXPECT_EQ(bits.count("layer2.0.shortcut.0.requantize"), 0u);
  for (size_t n = 0; n < plan.graph.nodes.size(); ++n) {
    const Node& node = plan.graph.nodes[n];
    if (node.name == "layer1.0.conv1") {
      EXPECT_EQ(plan.graph.nodes[node.inputs[0]].name, "conv1.requantize");
    }
    if (node.name != "layer1.0.conv2") continue;
    EXPECT_EQ(plan.graph.nodes[node.inputs[0]].name, "layer1.0.conv1");
    EXPECT_EQ(plan.graph.nodes[node.inputs[1]].name, "conv1");  // the wide one
  }
}

/// Whichever input of an add an edge is, it has residual_bits: no convolution takes this add, for both come from pools.
TEST(BitPlan, BothInputsOfAnAddAreResiduals) {
  QuantSpec spec = w4a4();
  spec.residual_bits = 8;
  const NodeSpec of_a{"of_a", "max_pool", {"a"}, {{"kernel", 2}}}, of_b{"of_b", "max_pool", {"b"}, {{"kernel", 2}}};
  for (const std::vector<std::string>& inputs : {std::vector<std::string>{"of_a", "of_b"}, {"of_b", "of_a"}}) {
    const Graph graph = fuse(graph_of({conv_spec("first", {}),
                                       conv_spec("a", {"first"}),
                                       conv_spec("b", {"first"}),
                                       of_a,
                                       of_b,
                                       {"sum", "add", inputs, {}},
                                       conv_spec("c", {"sum"}),
                                       kFlat,
                                       kFc}));
    const Bits bits = bits_of(plan_bits(graph, spec));
    for (const char* name : {"a", "b"}) EXPECT_EQ(bits.at(name), "4/8") << inputs[0] << " + " << inputs[1];
    EXPECT_EQ(bits.at("sum"), "-/4");  // read by a convolution alone
  }
}

/// Published W4A4 rounds what convolutions multiply, not what a function, product, concat or pool reads.
TEST(BitPlan, OnlyWhatIsMultipliedHasFewBits) {
  QuantSpec spec = w4a4();
  spec.residual_bits = 8;
  for (const char* name : {"efficientnet_b0", "mobilenet_v3_large", "squeezenet1_1"}) {
    const PlannedGraph plan = plan_bits(model(name), spec);
    long narrow = 0, others = 0;
    for (const Node& node : plan.graph.nodes) {
      const bool multiplies = has_weight(node.op);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const int bits = plan.bits.activation_bits[node.inputs[i]];
        if (multiplies && i == 0) {
          narrow += bits == 4;
        } else if (node.op != Op::requantize && !passes_codes_on(node.op)) {
          EXPECT_EQ(bits, 8) << name << ": " << node.name;
          ++others;
        }
      }
    }
    const auto weighted = std::count_if(plan.graph.nodes.begin(), plan.graph.nodes.end(),
                                        [](const Node& node) { return has_weight(node.op); });
    EXPECT_GE(narrow, weighted - 2) << name;  // but for the first and the last
    EXPECT_GT(others, 8) << name;
  }
}

TEST(BitPlan, OneRequantizeNodeServesAllThatReadTheSame) {
  QuantSpec spec = w4a4();
  spec.residual_bits = 6;
  const Graph graph = fuse(graph_of({conv_spec("a", {}),
                                     conv_spec("a.requantize", {"a"}),  // the name is taken
                                     {"p", "max_pool", {"a"}, {{"kernel", 3}, {"stride", 1}, {"pad", 1}}},
                                     conv_spec("b", {"p"}),
                                     conv_spec("c", {"a"}),
                                     {"j", "add", {"a.requantize", "p"}, {}},
                                     {"k", "concat", {"j", "b", "c"}, {}},
                                     kFlat,
                                     kFc}));
  const PlannedGraph plan = plan_bits(graph, spec);
  const Bits bits = bits_of(plan);
  EXPECT_EQ(bits.at("a"), "8/6");
  EXPECT_EQ(bits.at("p"), "-/6");
  EXPECT_EQ(bits.at("a.requantize_"), "-/4");
  EXPECT_EQ(bits.at("p.requantize"), "-/4");
  EXPECT_EQ(bits.at("a.requantize"), "4/6");  // with the add, for the concat
  EXPECT_EQ(bits.at("fc"), "8/-");
  EXPECT_EQ(plan.graph.nodes.size(), graph.nodes.size() + 2);
}

/// Codes behind a flatten lie in another order than the weight's columns: the requantize node goes before it.
TEST(BitPlan, FlattenIsReadByItsLinearAlone) {
  QuantSpec spec = w4a4();
  spec.residual_bits = 8;
  spec.last_layer_bits = 4;
  const Graph graph = fuse(graph_of({conv_spec("a", {}),
                                     {"r", "relu", {}, {}},
                                     {"j", "add", {"a", "r"}, {}},
                                     {"k", "add", {"j", "r"}, {}},
                                     {"f", "flatten", {"r"}, {}},
                                     {"l", "linear", {}, {{"out_channels", 5}}},
                                     {"g", "global_avg_pool", {"k"}, {}},
                                     {"m", "linear", {}, {{"out_channels", 5}}},
                                     {"n", "add", {"l", "m"}, {}},
                                     {"o", "linear", {}, {{"out_channels", 3}}}}));
  const PlannedGraph plan = plan_bits(graph, spec);
  const Bits bits = bits_of(plan);
  EXPECT_EQ(bits.at("r"), "-/8");
  EXPECT_EQ(bits.at("r.requantize"), "-/4");
  EXPECT_EQ(bits.at("f"), "-/4");
  EXPECT_EQ(bits.count("f.requantize"), 0u);
}

TEST(BitPlan, SingleLayersWinAndLaterEntriesWin) {
  QuantSpec spec = w4a4();
  spec.layers = {{"layer1.*", 6, 6}, {"layer1.0.conv?", 0, 3}, {"conv1", 2, 0},
                 {"linear", 3, 0},   {"avgpool", 0, 2},        {"input", 0, 5}};
  const Bits bits = bits_of(plan_bits(model("resnet20"), spec));
  EXPECT_EQ(bits.at("layer1.0.conv1"), "6/3");
  EXPECT_EQ(bits.at("layer1.1.conv2"), "6/6");
  EXPECT_EQ(bits.at("layer2.0.conv1"), "4/4");
  EXPECT_EQ(bits.at("conv1"), "2/4");
  EXPECT_EQ(bits.at("linear"), "3/-");
  EXPECT_EQ(bits.at("avgpool"), "-/2");
  EXPECT_EQ(bits.at("input"), "-/5");
}

/// An entry says what layers read; the add's share of the edge is never narrower.
TEST(BitPlan, EntriesAndTheResidualStream) {
  QuantSpec spec = w4a4();
  spec.residual_bits = 8;
  spec.layers = {{"layer1.0.conv2", 0, 6}, {"layer1.1.conv2", 0, 8}};
  const Bits bits = bits_of(plan_bits(model("resnet20"), spec));
  EXPECT_EQ(bits.at("layer1.0.conv2"), "4/8");
  EXPECT_EQ(bits.at("layer1.0.conv2.requantize"), "-/6");
  EXPECT_EQ(bits.at("layer1.1.conv2"), "4/8");
  EXPECT_EQ(bits.count("layer1.1.conv2.requantize"), 0u);
  spec.residual_bits = 3;  // a stream narrower than the rest is as narrow for all that read it
  const Bits narrow = bits_of(plan_bits(model("resnet20"), spec));
  EXPECT_EQ(narrow.at("conv1"), "8/3");
  EXPECT_EQ(narrow.at("layer1.0.conv2"), "4/6");
  EXPECT_EQ(narrow.at("layer1.1.conv1"), "4/4");
  EXPECT_EQ(std::count_if(narrow.begin(), narrow.end(),
                          [](const auto& node) { return node.first.find("requantize") != std::string::npos; }),
            0);
}

TEST(BitPlan, RefusesEntriesThatNameNothing) {
  const Graph resnet = model("resnet20");
  QuantSpec spec = w4a4();
  spec.layers = {{"layer1.*", 4, 0}, {"layre3.0.*", 4, 0}};
  expect_names(refusal(resnet, spec),
               {"quant.layers, 'layre3.0.*': names no layer of resnet20", "nearest: layer3.0.", "layer3.0.conv2"});
  spec.layers = {{"avgpool", 4, 0}};
  expect_names(refusal(resnet, spec),
               {"quant.layers, 'avgpool': weight_bits 4: names only layers without weights of resnet20", "nearest: "});
  spec.layers = {{"flatten", 0, 4}};
  expect_names(refusal(resnet, spec), {"'flatten': activation_bits 4: names only layers without codes of their own"});
  spec.layers = {{"linear", 0, 4}};  // float logits
  expect_names(refusal(resnet, spec), {"'linear': activation_bits 4: names only layers without codes of their own"});
  spec.layers = {{"*", 4, 4}};
  EXPECT_EQ(refusal(resnet, spec), "");
}

TEST(BitPlan, RefusesBitsOutsideTwoToEight) {
  const Graph graph = model("resnet8");
  expect_names(refusal(graph, {.activation_bits = 9}), {"quant.activation_bits: 9 is outside 2..8"});
  expect_names(refusal(graph, {.weight_bits = 1}), {"quant.weight_bits: 1 is outside"});
  expect_names(refusal(graph, {.input_bits = 0}), {"quant.input_bits: 0"});
  expect_names(refusal(graph, {.first_layer_bits = 9}), {"quant.first_layer_bits: 9"});
  expect_names(refusal(graph, {.last_layer_bits = 1}), {"quant.last_layer_bits: 1"});
  expect_names(refusal(graph, {.residual_bits = 1}), {"quant.residual_bits: 1"});
  expect_names(refusal(graph, {.layers = {{"conv1", 9, 0}}}),
               {"quant.layers, 'conv1': weight_bits: 9 is outside 2..8"});
}

TEST(WeightCodes, OfEveryWidth) {
  EXPECT_EQ(weight_codes(8, WeightRange::symmetric), (WeightCodes{-127, 127}));
  EXPECT_EQ(weight_codes(8, WeightRange::full), (WeightCodes{-127, 127}));
  EXPECT_EQ(weight_codes(4, WeightRange::symmetric), (WeightCodes{-7, 7}));
  EXPECT_EQ(weight_codes(4, WeightRange::full), (WeightCodes{-8, 7}));
  EXPECT_EQ(weight_codes(2, WeightRange::symmetric), (WeightCodes{-1, 1}));
  EXPECT_EQ(weight_codes(2, WeightRange::full), (WeightCodes{-2, 1}));
}

TEST(LayerNames, GlobDistanceIsZeroWhereItMatches) {
  for (const auto& [glob, name] : {std::pair{"layer4.*", "layer4.0.conv1"},
                                   {"*", ""},
                                   {"*", "x"},
                                   {"a?c", "abc"},
                                   {"*.conv?", "layer1.0.conv2"},
                                   {"a*b*c", "abc"},
                                   {"a*b*c", "a--b--b-c"},
                                   {"", ""}}) {
    EXPECT_EQ(glob_distance(glob, name), 0u) << glob << " " << name;
  }
  EXPECT_EQ(glob_distance("layer4.*", "layer3.0.conv1"), 1u);
  EXPECT_EQ(glob_distance("a?c", "ac"), 1u);
  EXPECT_EQ(glob_distance("conv1", "conv12"), 1u);
  EXPECT_EQ(glob_distance("layer.*", "layer4.0"), 1u);
  EXPECT_EQ(glob_distance("abc", ""), 3u);
  EXPECT_EQ(nearest_names("layre4.*", {"conv1", "layer4.0.conv1", "fc", "layer3.0"}, 2), "layer4.0.conv1, layer3.0");
}

}  // namespace
}  // namespace octet
