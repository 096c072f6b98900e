// SPDX-License-Identifier: Apache-2.0
// Quantized networks in: what octet wrote comes back to the byte, and what other tools write becomes an Int8Graph or is
// refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "onnx.pb.h"
#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/random_network.h"
#include "tests/error_of.h"
#include "tests/net/onnx/read_qdq.h"
#include "tests/net/onnx/with_attention.h"
#include "tests/net/onnx/with_outputs.h"

namespace octet {
namespace {

using namespace test;

void expect_back(const Int8Graph& graph, int opset) {
  std::vector<std::string> codes;
  const ImportedInt8 back = parsed(write_qdq(graph, {.opset = opset}, &codes));
  EXPECT_EQ(back.codes, codes);  // by node, under the same names
  EXPECT_EQ(back.graph.preprocessing, graph.preprocessing);
  EXPECT_EQ(back.graph.class_names, graph.class_names);
  ASSERT_EQ(back.graph.nodes.size(), graph.nodes.size()) << graph.name;
  EXPECT_EQ(back.graph.outputs, graph.outputs) << graph.name;
  const std::vector<uint8_t> pixels = random_images(graph, kBatch, 5);
  const auto ours = codes_of(graph, pixels), theirs = codes_of(back.graph, pixels);
  for (const auto& [name, codes] : ours) {
    ASSERT_TRUE(theirs.contains(name)) << graph.name << " " << name;
    EXPECT_EQ(theirs.at(name), codes) << graph.name << " " << name;
  }
}

Int8Graph named_int8(const std::string& name, ActivationScheme scheme) {
  ModelSpec model;
  model.name = name;
  model.input = {3, 20, 20};
  if (name == "unet") model.input = {3, 32, 32}, model.width = 0.125;
  if (name == "resnet20") model.shortcut = 'A';
  QuantSpec spec;
  spec.activation = scheme;
  Int8Graph graph = random_int8_graph(build_model(model), spec, 3);
  graph.class_names.assign(static_cast<size_t>(model.classes), "a name");
  return graph;
}

TEST(QdqImport, WhatOctetWroteComesBackToTheByte) {
  for (const ActivationScheme scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8}) {
    expect_back(named_int8("small_cnn", scheme), 13);
    expect_back(named_int8("resnet18", scheme), 21);
    expect_back(named_int8("resnet20", scheme), 13);
    expect_back(named_int8("squeezenet1_1", scheme), 13);
    expect_back(named_int8("mobilenet_v3_large", scheme), 13);
  }
  expect_back(named_int8("mobilenet_v2", ActivationScheme::affine_u8), 13);
  expect_back(named_int8("shufflenet_v2_x0_5", ActivationScheme::affine_u8), 13);
  expect_back(named_int8("efficientnet_b0", ActivationScheme::affine_u8), 21);
}

TEST(QdqImport, ClassesOfPixelsComeBack) {
  for (const ActivationScheme scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8})
    expect_back(named_int8("unet", scheme), 13);
}

TEST(QdqImport, SeveralOutputsComeBack) {
  for (const ActivationScheme scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8})
    expect_back(with_outputs(scheme), 13);
}

TEST(QdqImport, AttentionComesBack) {
  for (const ActivationScheme scheme :
       {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8, ActivationScheme::affine_u8})
    for (const double scale : {1.0, 0.7, 0.1767766952966369}) expect_back(with_attention(scheme, scale), 13);
}

TEST(QdqImport, FourBitCodesAndAFlattenComeBack) {
  GraphBuilder builder("flat", {3, 9, 9}, false);
  int x = builder.conv("conv", 0, {.out_channels = 5, .kernel = 3, .stride = 2, .bias = true});
  x = builder.unary(Op::relu6, "relu6", x);
  x = builder.unary(Op::flatten, "flatten", x);
  x = builder.linear("hidden", x, 12);
  x = builder.lookup(FunctionKind::leaky_relu, "leaky", x);
  builder.linear("fc", x, 4);
  const Graph graph = builder.finish();
  QuantSpec spec = uniform_bits(4, 4);
  expect_back(random_int8_graph(graph, spec, 4), 13);
  spec.activation_bits = 8;
  expect_back(random_int8_graph(graph, spec, 4), 21);
}

/// As other tools write: float weights behind a QuantizeLinear of their own, scales of one number, a zero point of
/// weights that is not 0, quantized logits, no mean and std.
onnx::ModelProto foreign() {
  Int8Graph graph = named_int8("small_cnn", ActivationScheme::affine_u8);
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(write_qdq(graph, {})));
  return model;
}

onnx::NodeProto& node_of(onnx::ModelProto& model, const std::string& name) {
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node())
    if (node.name() == name) return node;
  throw std::runtime_error("no node " + name);
}

onnx::TensorProto& tensor_of(onnx::ModelProto& model, const std::string& name) {
  for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer())
    if (tensor.name() == name) return tensor;
  throw std::runtime_error("no tensor " + name);
}

TEST(QdqImport, WeightsMayBeUnsignedWithTheirZeroInTheMiddle) {
  onnx::ModelProto model = foreign();
  const ImportedInt8 before = parsed(model.SerializeAsString());
  for (onnx::TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) {
    const bool codes = tensor.name().ends_with(".weight_codes"), zero = tensor.name().ends_with(".weight_zero_point");
    if (!codes && !zero) continue;
    tensor.set_data_type(onnx::TensorProto::UINT8);
    for (char& byte : *tensor.mutable_raw_data()) byte = static_cast<char>(static_cast<uint8_t>(byte) ^ 0x80);
  }
  model.clear_metadata_props();
  const ImportedInt8 after = parsed(model.SerializeAsString());
  ASSERT_EQ(after.graph.nodes.size(), before.graph.nodes.size());
  for (size_t n = 0; n < after.graph.nodes.size(); ++n) {
    EXPECT_EQ(after.graph.nodes[n].weight, before.graph.nodes[n].weight);
    EXPECT_EQ(after.graph.nodes[n].multiplier, before.graph.nodes[n].multiplier);
  }
  ASSERT_EQ(after.notes.size(), 1u);
  EXPECT_NE(after.notes[0].find("no mean and std"), std::string::npos);
}

TEST(QdqImport, TheLowestWeightIsNamed) {
  onnx::ModelProto model = foreign();
  std::string last;  // the linear layer
  for (const onnx::NodeProto& node : model.graph().node())
    if (node.op_type() == "Gemm") last = node.name();
  std::string& codes = *tensor_of(model, last + ".weight_codes").mutable_raw_data();
  codes[0] = static_cast<char>(-128);
  codes[3] = static_cast<char>(-128);
  const ImportedInt8 imported = parsed(model.SerializeAsString());
  ASSERT_EQ(imported.notes.size(), 1u);
  EXPECT_EQ(imported.notes[0], last + ": 2 weights of -128 become -127");
  EXPECT_EQ(imported.graph.nodes.back().weight[0], -127);
}

TEST(QdqImport, WhatIsMissingIsNamed) {
  const auto expect_refused = [](const onnx::ModelProto& model, const std::string& part) {
    const std::string message = error_of([&] { parsed(model.SerializeAsString()); });
    EXPECT_NE(message.find("test.onnx: "), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  onnx::ModelProto model = foreign();
  std::string first;  // the first convolution
  for (const onnx::NodeProto& node : model.graph().node())
    if (first.empty() && node.op_type() == "Conv") first = node.name();

  onnx::ModelProto bare = model;  // reads the image itself
  node_of(bare, first).set_input(0, bare.graph().input(0).name());
  expect_refused(bare, "has no scale");

  onnx::ModelProto norm = model;
  node_of(norm, first).set_op_type("BatchNormalization");
  expect_refused(norm, "(BatchNormalization): in a quantized network; fold it into its convolution before quantizing");

  onnx::ModelProto real = model;
  const std::string weight = node_of(real, first).input(1);
  node_of(real, weight).set_op_type("Identity");
  for (int i = 0; i < 2; ++i) node_of(real, weight).mutable_input()->RemoveLast();
  node_of(real, weight).clear_attribute();
  expect_refused(real, "expected float32 weights");

  onnx::ModelProto other = model;
  onnx::TensorProto& scale = *other.mutable_graph()->add_initializer();
  scale = tensor_of(other, first + ".scale");
  scale.set_name("another");
  const float twice = 2;
  scale.set_raw_data(&twice, sizeof(twice));
  node_of(other, first + "/DequantizeLinear").set_input(1, "another");
  expect_refused(other, "are not those of the QuantizeLinear before it");

  onnx::ModelProto negative = model;
  const float below = -1;
  tensor_of(negative, first + ".scale").set_raw_data(&below, sizeof(below));
  expect_refused(negative, "scale -1; expected a positive number");

  onnx::ModelProto codes = model;
  node_of(codes, node_of(codes, first).input(0)).set_op_type("Identity");
  for (int i = 0; i < 2; ++i) node_of(codes, node_of(codes, first).input(0)).mutable_input()->RemoveLast();
  expect_refused(codes, "expected a DequantizeLinear");

  EXPECT_NE(error_of([&] {
              const std::string bytes = model.SerializeAsString();
              parse_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.onnx");
            })
                .find("a quantized network; octet run and bench take it, octet export FILE.onnx --out int8.safetensors "
                      "makes a checkpoint of it"),
            std::string::npos);
}

/// One scale behind a transposed convolution, two nodes here. All scales are powers of two: reals are exact.
TEST(QdqImport, ATransposedConvolutionHasItsScalesAlongItsSecondAxis) {
  constexpr int kOut = 2, kKernel = 4, kHeight = 4, kWidth = 3;
  const std::vector<float> scales = {0.03125f, 0.015625f};
  ModelBuilder model({3, kHeight, kWidth});
  const std::vector<float> weight = model.weight("w", {3, kOut, kKernel, kKernel});
  model.scalar("image_scale", 0.0078125f);
  model.scalar("up_scale", 0.0625f);
  model.reals("w_scale", scales);
  model.reals("bias", {0.5f, -0.25f});
  onnx::TensorProto& zero = *model.model().mutable_graph()->add_initializer();
  zero.set_name("zero");
  zero.set_data_type(onnx::TensorProto::INT8);
  zero.set_raw_data(std::string(1, '\0'));
  onnx::TensorProto& zeros = *model.model().mutable_graph()->add_initializer();
  zeros.set_name("zeros");
  zeros.set_data_type(onnx::TensorProto::INT8);
  zeros.add_dims(kOut);
  zeros.set_raw_data(std::string(kOut, '\0'));
  quantized(model, "image", "image_scale", "zero");
  quantized(model, "w", "w_scale", "zeros");
  model.node("ConvTranspose", {"image_q", "w_q", "bias"}, "up").ints("strides", {2, 2}).ints("pads", {1, 1, 1, 1});
  model.node("Relu", {"up"}, "relu");
  quantized(model, "relu", "up_scale", "zero");
  model.node("GlobalAveragePool", {"relu_q"}, "y");
  const ImportedInt8 imported = parsed(model.bytes("y"));
  const Int8Graph& graph = imported.graph;
  ASSERT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.nodes[2].op, Int8Op::depth_to_space);

  const auto codes = codes_of(graph, random_images(graph, kBatch, 5));
  const std::vector<uint8_t>& image = codes.at("input codes");
  const std::vector<uint8_t>& up = codes.at(graph.nodes[2].name);
  ASSERT_EQ(up.size(), static_cast<size_t>(kBatch) * 4 * kHeight * kWidth * kOut);
  size_t at = 0;
  for (int n = 0; n < kBatch; ++n)
    for (int y = 0; y < 2 * kHeight; ++y)
      for (int x = 0; x < 2 * kWidth; ++x)
        for (int k = 0; k < kOut; ++k, ++at) {
          double sum = k == 0 ? 0.5 : -0.25;
          for (int row = 0; row < kHeight; ++row)
            for (int column = 0; column < kWidth; ++column) {
              const int r = y + 1 - 2 * row, s = x + 1 - 2 * column;
              if (r < 0 || r >= kKernel || s < 0 || s >= kKernel) continue;
              for (int c = 0; c < 3; ++c) {
                const size_t pixel = (static_cast<size_t>(n) * kHeight + row) * kWidth + column;
                const double scale = scales[static_cast<size_t>(k)];
                const float w = weight[((static_cast<size_t>(c) * kOut + k) * kKernel + r) * kKernel + s];
                const double rounded = std::clamp(std::nearbyint(w / scale), -128.0, 127.0) * scale;
                sum += static_cast<int8_t>(image[pixel * 3 + c]) * 0.0078125 * rounded;
              }
            }
          EXPECT_EQ(static_cast<int8_t>(up[at]), std::clamp(std::nearbyint(sum / 0.0625), 0.0, 127.0)) << at;
        }
}

/// The logits are reals in octet, without bounds: a Relu or Clip between them and their QuantizeLinear would be lost.
TEST(QdqImport, ABoundOfRealsIsRefused) {
  const auto ends_in = [](const std::string& bound) {
    onnx::ModelProto model = foreign();
    onnx::GraphProto& graph = *model.mutable_graph();
    const auto add = [&](const std::string& op, const std::vector<std::string>& inputs, const std::string& output) {
      onnx::NodeProto& node = *graph.add_node();
      node.set_op_type(op);
      node.set_name(output);
      for (const std::string& input : inputs) node.add_input(input);
      node.add_output(output);
    };
    std::string scale, zero, y = graph.output(0).name();
    for (const onnx::NodeProto& node : graph.node())
      if (node.op_type() == "QuantizeLinear") scale = node.input(1), zero = node.input(2);
    if (bound == "Clip") add(bound, {y, scale}, "bounded");  // from the scale on
    if (bound == "Relu") add(bound, {y}, "bounded");
    if (!bound.empty()) y = "bounded";
    add("QuantizeLinear", {y, scale, zero}, "codes");
    add("DequantizeLinear", {"codes", scale, zero}, "reals");
    graph.mutable_output(0)->set_name("reals");
    return model.SerializeAsString();
  };
  const ImportedInt8 unbounded = parsed(ends_in(""));
  EXPECT_NE(unbounded.notes.back().find("the logits are not quantized in octet"), std::string::npos);
  const std::string name = unbounded.graph.nodes.back().name;
  for (const char* bound : {"Relu", "Clip"}) {
    const std::string message = error_of([&] { parsed(ends_in(bound)); });
    EXPECT_NE(message.find("test.onnx: node '" + name +
                           "' (linear): a Relu or Clip before the QuantizeLinear of an "
                           "output"),
              std::string::npos)
        << bound << ": " << message;
  }
}

/// Damaged anywhere: an error or a valid network, nothing else.
TEST(QdqImport, DamagedAnywhere) {
  const std::string whole = foreign().SerializeAsString();
  std::mt19937 random(11);
  int good = 0;
  for (int i = 0; i < 150; ++i) {
    std::string bytes = whole;
    for (int change = 0; change < 3; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (error_of([&] { validate(parsed(bytes).graph); }).empty()) ++good;
  }
  EXPECT_GT(good, 0);
  for (size_t size = 0; size < whole.size(); size += whole.size() / 40 + 1)
    EXPECT_NE(error_of([&] { parsed(whole.substr(0, size)); }), "");
}

}  // namespace
}  // namespace octet
