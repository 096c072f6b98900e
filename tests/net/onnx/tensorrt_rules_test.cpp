// SPDX-License-Identifier: Apache-2.0
// TensorRT's rules: what octet writes for it keeps them, and a change of one thing breaks the one rule about it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "onnx.pb.h"
#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/error_of.h"
#include "tests/net/onnx/with_attention.h"
#include "tests/net/onnx/with_outputs.h"

namespace octet::test {
namespace {

using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr QuantSpec kSymmetric = {.activation = ActivationScheme::symmetric_s8};

Int8Graph zoo_network(const std::string& name) {
  ModelSpec model{.name = name, .input = {3, 32, 32}};
  model.width = name == "unet2" ? 0.125 : 1;
  return random_int8_graph(build_model(model), kSymmetric, 3);
}

/// A SiLU whose values a convolution and a sum read: this sum has an Add of its own. Another is behind its convolution.
Int8Graph with_sums() {
  GraphBuilder builder("sums", {3, 9, 9}, false);
  int x = builder.conv("stem", 0, {.out_channels = 8, .kernel = 3, .pad = 1, .bias = true});
  x = builder.lookup(FunctionKind::silu, "silu", x);
  const int y = builder.conv("branch", x, {.out_channels = 8, .bias = true});
  x = builder.join(Op::add, "own", {builder.lookup(FunctionKind::silu, "silu_2", y), x});
  x = builder.join(Op::add, "fused", {builder.conv("last", x, {.out_channels = 8, .bias = true}), x});
  x = builder.unary(Op::relu, "relu", x);
  builder.linear("fc", builder.unary(Op::global_avg_pool, "gap", x), 4);
  return random_int8_graph(fuse(builder.finish()), kSymmetric, 4);
}

std::string written(const Int8Graph& graph, OnnxProfile profile = OnnxProfile::tensorrt, int opset = 13) {
  return write_qdq(graph, {.profile = profile, .opset = opset});
}

std::vector<std::string> faults_of(const std::string& bytes) {
  return tensorrt_faults(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.onnx");
}

NodeProto& node(ModelProto& model, const std::string& name) {
  for (NodeProto& found : *model.mutable_graph()->mutable_node())
    if (found.name() == name) return found;
  throw std::out_of_range(name);
}

TensorProto& tensor(ModelProto& model, const std::string& name) {
  for (TensorProto& found : *model.mutable_graph()->mutable_initializer())
    if (found.name() == name) return found;
  throw std::out_of_range(name);
}

/// The node that gives a node's input.
const NodeProto& maker(const ModelProto& model, const NodeProto& of, int input) {
  for (const NodeProto& found : model.graph().node())
    if (found.output(0) == of.input(input)) return found;
  throw std::out_of_range(of.input(input));
}

void set_axis(NodeProto& node, int64_t axis) {
  for (onnx::AttributeProto& attribute : *node.mutable_attribute())
    if (attribute.name() == "axis") attribute.set_i(axis);
}

NodeProto& append(ModelProto& model, const std::string& op, const std::vector<std::string>& inputs,
                  const std::string& output) {
  NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

void append_reals(ModelProto& model, const std::string& name, const std::vector<int64_t>& dims, int count) {
  TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(TensorProto::FLOAT);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  for (int i = 0; i < count; ++i) tensor.add_float_data(0.3f + 0.1f * static_cast<float>(i % 3));
}

/// What a changed ResNet-8 breaks.
class Rules : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(model_.ParseFromString(written(zoo_network("resnet8")))); }

  /// Expects that one rule is broken, in a sentence with these parts.
  void expect_broken(const std::vector<std::string>& parts) {
    const std::vector<std::string> faults = faults_of(model_.SerializeAsString());
    ASSERT_EQ(faults.size(), 1u) << parts[0] << (faults.empty() ? "" : "\n" + faults.back());
    for (const std::string& part : parts)
      EXPECT_NE(faults[0].find(part), std::string::npos) << part << "\n" << faults[0];
    model_.Clear();
    ASSERT_TRUE(model_.ParseFromString(written(zoo_network("resnet8"))));
  }

  void expect_kept() {
    EXPECT_EQ(faults_of(model_.SerializeAsString()), std::vector<std::string>());
    ASSERT_TRUE(model_.ParseFromString(written(zoo_network("resnet8"))));
  }

  NodeProto& quantize(const std::string& of) { return node(model_, of + "/QuantizeLinear"); }
  NodeProto& dequantize(const std::string& of) { return node(model_, of + "/DequantizeLinear"); }

  ModelProto model_;
};

TEST(TensorRtRules, WhatOctetWritesForTensorRtKeepsThem) {
  for (const char* name : {"resnet8", "unet2", "squeezenet1_1", "mobilenet_v3_large", "small_cnn"})
    for (const int opset : {13, 21})
      EXPECT_EQ(faults_of(written(zoo_network(name), OnnxProfile::tensorrt, opset)), std::vector<std::string>())
          << name;
  for (const Int8Graph& graph :
       {with_sums(), with_attention(kSymmetric.activation), with_outputs(kSymmetric.activation)})
    EXPECT_EQ(faults_of(written(graph)), std::vector<std::string>()) << graph.name;
}

/// The first input of an Add behind a convolution is the convolution's, in reals; the second is the residual, as codes.
TEST(TensorRtRules, ResidualsAreQuantizedAndWhatIsAddedToThemIsNot) {
  int fused = 0, own = 0;
  for (const Int8Graph& graph : {zoo_network("resnet8"), with_sums()}) {
    ModelProto model;
    ASSERT_TRUE(model.ParseFromString(written(graph)));
    for (const NodeProto& sum : model.graph().node()) {
      if (sum.op_type() != "Add") continue;
      EXPECT_EQ(maker(model, sum, 1).op_type(), "DequantizeLinear") << sum.name();
      const std::string first = maker(model, sum, 0).op_type();
      fused += first == "Conv";
      own += first == "DequantizeLinear";
    }
  }
  EXPECT_EQ(fused, 4);
  EXPECT_EQ(own, 1);
}

TEST(TensorRtRules, AnExportThatBreaksOneIsNotWritten) {
  Int8Graph graph = zoo_network("resnet8");
  graph.nodes[0].out.scale = std::numeric_limits<float>::infinity();
  const std::string message = error_of([&] { written(graph); });
  EXPECT_NE(message.find("export: not for TensorRT: node 'input/QuantizeLinear'"), std::string::npos) << message;
  EXPECT_EQ(error_of([&] { written(graph, OnnxProfile::onnxruntime); }), "");
}

TEST(TensorRtRules, AFloatNetworkHasNothingToHoldToThem) {
  ModelProto model;
  model.add_opset_import()->set_version(13);
  append(model, "Relu", {"x"}, "y");
  EXPECT_NE(error_of([&] { faults_of(model.SerializeAsString()); }).find("a float network"), std::string::npos);
}

TEST_F(Rules, OperatorsOnIntegersAreNone) {
  for (const char* op : {"QLinearConv", "ConvInteger", "DynamicQuantizeLinear"}) {
    append(model_, op, {"logits"}, "more").set_name("other");
    expect_broken({"node 'other' (" + std::string(op) + "): an operator on integers. The rule: only Q and DQ quantize",
                   "docs/operators.md)"});
  }
}

TEST_F(Rules, CodesAreInt8) {
  tensor(model_, "conv1.zero_point").set_data_type(TensorProto::UINT8);
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): its codes are UINT8 (1 other node likewise)",
                 "The rule: 8-bit codes are INT8", "onnx-tensorrt, docs/operators.md"});
  quantize("conv1").mutable_input()->RemoveLast();
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): its codes are UINT8. ", "a Q that names no type"});
  TensorProto& codes = tensor(model_, "linear.weight_codes");
  codes.set_data_type(TensorProto::UINT8);
  expect_broken({"node 'linear.weight' (DequantizeLinear): its codes are UINT8. "});
}

TEST_F(Rules, ZeroPointsAreZero) {
  tensor(model_, "conv1.zero_point").set_raw_data("\x03");
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): has a zero point of 3 (1 other node likewise)",
                 "The rule: quantization is symmetric", "IQuantizeLayer"});
  tensor(model_, "linear.weight_zero_point").mutable_raw_data()->back() = '\xff';
  expect_broken({"node 'linear.weight' (DequantizeLinear): has a zero point of -1. "});
  tensor(model_, "linear.weight_zero_point").mutable_raw_data()->pop_back();
  tensor(model_, "linear.weight_zero_point").set_dims(0, 9);
  expect_broken({"node 'linear.weight' (DequantizeLinear): has 9 zero points for 10 scales. "});
  dequantize("conv1").set_input(2, "input/QuantizeLinear");
  expect_broken({"node 'conv1/DequantizeLinear' (DequantizeLinear): its zero point is no integer constant. "});
}

TEST_F(Rules, ScalesArePositiveConstants) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0f, -0.25f, kInfinite, std::numeric_limits<float>::quiet_NaN()}) {
    tensor(model_, "conv1.scale").set_raw_data(&scale, sizeof(scale));
    expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): has a scale of ", "The rule: scales are constants",
                   "operator reference, Quantize"});
  }
  model_.mutable_graph()->add_input()->set_name("scale");
  quantize("conv1").set_input(1, "scale");
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): its scale is no real constant. "});
}

TEST_F(Rules, ActivationsHaveOneScale) {
  append_reals(model_, "scales", {16}, 16);
  for (NodeProto* node : {&quantize("conv1"), &dequantize("conv1")}) {
    node->set_input(1, "scales");
    node->set_input(2, "");
    onnx::AttributeProto& type = *node->add_attribute();
    type.set_name("output_dtype");
    type.set_type(onnx::AttributeProto::INT);
    type.set_i(node->op_type() == "QuantizeLinear" ? TensorProto::INT8 : TensorProto::FLOAT);
  }
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): has 16 scales (1 other node likewise)",
                 "The rule: an activation has one scale", "Working with Quantized Types"});
}

TEST_F(Rules, WeightsHaveScalesAlongTheOutputChannels) {
  const std::string conv = "layer3.0.conv2";
  set_axis(node(model_, conv + ".weight"), 1);  // 64 output and 64 input channels
  expect_broken({"node '" + conv + "' (Conv): its input 1 is [64, 64, 3, 3] with scales [64] along axis 1",
                 "The rule: weights have one scale, or one for each index of an axis", "Working with Quantized Types"});
  set_axis(node(model_, conv + ".weight"), -4);
  expect_kept();
  node(model_, conv).set_op_type("ConvTranspose");  // along its input channels
  expect_kept();
  node(model_, conv).set_op_type("ConvTranspose");
  set_axis(node(model_, conv + ".weight"), 1);
  expect_broken({"node '" + conv + "' (ConvTranspose): its input 1 is"});
  node(model_, "linear").clear_attribute();  // transB
  expect_broken({"node 'linear' (Gemm): its input 1 is [10, 64] with scales [10] along axis 0"});
}

TEST_F(Rules, AMatMulHasScalesAlongTheColumnsOfItsSecondInput) {
  const auto as_mat_mul = [&]() -> NodeProto& {
    NodeProto& fc = node(model_, "linear");
    fc.set_op_type("MatMul");
    fc.clear_attribute();
    fc.mutable_input()->RemoveLast();
    return fc;
  };
  as_mat_mul();
  expect_broken({"node 'linear' (MatMul): its input 1 is [10, 64] with scales [10] along axis 0"});
  as_mat_mul().set_input(1, "turned");  // as PyTorch writes a linear layer
  append(model_, "Transpose", {"linear.weight"}, "turned");
  expect_kept();
  as_mat_mul().set_input(1, "turned");
  append(model_, "Transpose", {"linear.weight"}, "turned");
  node(model_, "linear").mutable_input()->SwapElements(0, 1);
  expect_broken({"node 'linear' (MatMul): its input 0 is [10, 64] with scales"});
}

TEST_F(Rules, ScalesAlongAnAxisNeedOpset13) {
  model_.mutable_opset_import(0)->set_version(12);
  expect_broken({"node 'conv1.weight' (DequantizeLinear): has 16 scales in opset 12 (9 other nodes likewise)",
                 "The rule: scales along an axis need opset 13", "opset 9 to 25"});
}

TEST_F(Rules, CodesGoFromAQuantizeLinearToADequantizeLinear) {
  append(model_, "Relu", {"conv1/QuantizeLinear"}, "codes").set_name("relu");
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): gives codes to node 'relu' (Relu)",
                 "The rule: Q and DQ are pairs", "Explicit Quantization, ONNX Support"});
  model_.mutable_graph()->add_output()->set_name("conv1/QuantizeLinear");
  expect_broken({"node 'conv1/QuantizeLinear' (QuantizeLinear): gives an output codes. "});
  append(model_, "Cast", {"images"}, "codes");
  dequantize("conv1").set_input(0, "codes");
  expect_broken({"node 'conv1/DequantizeLinear' (DequantizeLinear): reads what a Cast makes of codes. "});
}

TEST_F(Rules, BiasesHaveNoCodes) {
  ASSERT_TRUE(model_.ParseFromString(written(zoo_network("resnet8"), OnnxProfile::int32_bias)));
  expect_broken({"node 'conv1.bias' (DequantizeLinear): gives a bias, of INT32 codes (9 other nodes likewise)",
                 "The rule: biases stay in floating point", "IDequantizeLayer"});
  NodeProto& weight = node(model_, "linear.weight");
  append(model_, "DequantizeLinear", {weight.input(0), "conv1.scale"}, "eighth").set_name("int8 bias");
  node(model_, "linear").set_input(2, "eighth");
  expect_broken({"node 'int8 bias' (DequantizeLinear): gives a bias, of INT8 codes. "});
}

TEST_F(Rules, LayersAreQuantizedInBothInputs) {
  const std::string layer = "layer3.0.conv2";
  append_reals(model_, "reals", {64, 64, 3, 3}, 64 * 64 * 9);
  node(model_, layer).set_input(1, "reals");
  expect_broken({"node '" + layer + "' (Conv): input 'reals' comes from no DequantizeLinear, the other does",
                 "The rule: both inputs of a Conv", "Q/DQ Layer-Placement Recommendations"});
  NodeProto& first = node(model_, "conv1");
  first.set_input(0, "images");
  expect_broken({"node 'conv1' (Conv): input 'images' comes from no DequantizeLinear, the other does"});
  append_reals(model_, "reals", {16, 3, 3, 3}, 16 * 27);
  node(model_, "conv1").set_input(0, "images");
  node(model_, "conv1").set_input(1, "reals");  // a float layer
  expect_kept();
}

TEST_F(Rules, TheResidualOfASumIsQuantized) {
  const std::string layer = "layer1.0.conv2", name = layer + "/Add", residual = "conv1/Relu";
  ASSERT_EQ(node(model_, name).input(0), layer);
  ASSERT_EQ(node(model_, name).input(1), "conv1/DequantizeLinear");
  node(model_, name).set_input(1, residual);
  expect_broken({"node '" + name + "' (Add): adds '" + layer + "', the output of a layer, to '" + residual +
                     "', which is not quantized",
                 "The rule: of an Add behind a convolution the other input", "Q/DQ Layer-Placement Recommendations"});
  const auto quantize_layer = [&] {
    append(model_, "QuantizeLinear", {layer, "conv1.scale", "conv1.zero_point"}, "codes");
    append(model_, "DequantizeLinear", {"codes", "conv1.scale", "conv1.zero_point"}, "again");
    node(model_, name).set_input(0, "again");
  };
  quantize_layer();  // the wrong one of both
  node(model_, name).set_input(1, residual);
  expect_broken({"node '" + name + "' (Add): adds 'again', the output of a layer, to '" + residual + "'"});
  quantize_layer();  // an Add of its own on two int8 inputs
  expect_kept();
  node(model_, name).mutable_input()->SwapElements(0, 1);
  expect_kept();
}

TEST_F(Rules, OneOfTwoLayersThatAreAddedIsQuantized) {
  const std::string layer = "layer3.0.conv2", name = layer + "/Add", shortcut = "layer3.0.shortcut.0";
  ASSERT_EQ(node(model_, name).input(0), layer);
  node(model_, name).set_input(1, shortcut);
  expect_broken({"node '" + name + "' (Add): adds '" + layer + "', the output of a layer, to '" + shortcut + "'"});
  append(model_, "QuantizeLinear", {layer, "conv1.scale", "conv1.zero_point"}, "codes");
  append(model_, "DequantizeLinear", {"codes", "conv1.scale", "conv1.zero_point"}, "again");
  node(model_, name).set_input(0, "again");
  node(model_, name).set_input(1, shortcut);
  expect_kept();
}

}  // namespace
}  // namespace octet::test
