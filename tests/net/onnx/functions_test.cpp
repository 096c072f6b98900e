// SPDX-License-Identifier: Apache-2.0
// Functions of one value, and products, as exporters write them.
#include <ATen/ATen.h>

#include "tests/error_of.h"
#include "tests/net/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

const Function& last_function(const ImportedNetwork& network) {
  EXPECT_EQ(network.graph.nodes.back().op, Op::lookup);
  return network.graph.nodes.back().function;
}

TEST(OnnxFunctions, EachOperator) {
  const at::Tensor x = images(3, 8, 8) * 3;
  const auto found = [&](const char* op, const std::vector<std::pair<const char*, float>>& numbers) {
    ModelBuilder model({3, 8, 8}, 20);
    NodeBuilder node = model.node(op, {"image"}, "y");
    for (const auto& [name, value] : numbers) node.real(name, value);
    return outputs(imported(model.bytes("y")), x);
  };
  expect_close(found("Sigmoid", {}), at::sigmoid(x));
  expect_close(found("HardSigmoid", {{"alpha", 0.16666667f}, {"beta", 0.5f}}), at::hardsigmoid(x));
  expect_close(found("HardSwish", {}), at::hardswish(x));
  expect_close(found("Tanh", {}), at::tanh(x));
  expect_close(found("Gelu", {}), at::gelu(x));
  expect_close(found("LeakyRelu", {}), at::leaky_relu(x, 0.01));
  expect_close(found("LeakyRelu", {{"alpha", 0.25f}}), at::leaky_relu(x, 0.25));
  expect_close(found("Mish", {}), at::mish(x));
  expect_close(found("Softplus", {}), at::softplus(x));
  expect_close(found("Elu", {}), at::elu(x));
  expect_close(found("Elu", {{"alpha", 1.0f}}), at::elu(x));
  EXPECT_NE(error_of([&] { found("Elu", {{"alpha", 0.5f}}); }).find("alpha 0.5; expected 1"), std::string::npos);
}

TEST(OnnxFunctions, AValueTimesItsSigmoidIsOneLookup) {
  const at::Tensor x = images(3, 8, 8) * 3;
  for (const bool gate_first : {false, true}) {
    ModelBuilder model;
    model.node("Sigmoid", {"image"}, "gate");
    model.node("Mul",
               gate_first ? std::vector<std::string>{"gate", "image"} : std::vector<std::string>{"image", "gate"}, "y");
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.size(), 2u);
    EXPECT_EQ(last_function(network).kind, FunctionKind::silu);
    expect_close(outputs(network, x), at::silu(x));
  }
  ModelBuilder hard;
  hard.node("HardSigmoid", {"image"}, "gate").real("alpha", 1.0f / 6);
  hard.node("Mul", {"image", "gate"}, "y");
  expect_close(outputs(imported(hard.bytes("y")), x), at::hardswish(x));
}

TEST(OnnxFunctions, MishInPieces) {
  const at::Tensor x = images(3, 8, 8) * 3;
  for (const bool gate_first : {false, true}) {
    ModelBuilder model;
    model.node("Softplus", {"image"}, "soft");
    model.node("Tanh", {"soft"}, "gate");
    model.node("Mul",
               gate_first ? std::vector<std::string>{"gate", "image"} : std::vector<std::string>{"image", "gate"}, "y");
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.size(), 2u);
    EXPECT_EQ(last_function(network).kind, FunctionKind::mish);
    expect_close(outputs(network, x), at::mish(x));
  }
  ModelBuilder other;  // of another value's softplus
  other.node("Sigmoid", {"image"}, "s");
  other.node("Softplus", {"s"}, "soft");
  other.node("Tanh", {"soft"}, "gate");
  other.node("Mul", {"image", "gate"}, "y");
  const ImportedNetwork network = imported(other.bytes("y"));
  EXPECT_EQ(network.graph.nodes.back().op, Op::mul);
  expect_close(outputs(network, x), x * at::tanh(at::softplus(at::sigmoid(x))));
}

TEST(OnnxFunctions, HardSwishInPieces) {
  const at::Tensor x = images(3, 8, 8) * 3;
  for (const int order : {0, 1, 2}) {
    ModelBuilder model;
    model.scalar("three", 3);
    model.scalar("zero", 0);
    model.scalar("six", 6);
    model.scalar("sixth", 1.0f / 6);
    model.node("Add", {"image", "three"}, "shifted");
    model.node("Clip", {"shifted", "zero", "six"}, "six_gates");
    if (order == 0) {  // x * relu6(x + 3) / 6
      model.node("Mul", {"image", "six_gates"}, "product");
      model.node("Div", {"product", "six"}, "y");
    } else if (order == 1) {  // x * (relu6(x + 3) / 6)
      model.node("Div", {"six_gates", "six"}, "gate");
      model.node("Mul", {"gate", "image"}, "y");
    } else {
      model.node("Mul", {"sixth", "six_gates"}, "gate");
      model.node("Mul", {"image", "gate"}, "y");
    }
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.size(), 2u);
    EXPECT_EQ(last_function(network).kind, FunctionKind::hard_swish);
    expect_close(outputs(network, x), at::hardswish(x));
  }
}

TEST(OnnxFunctions, GeluInPieces) {
  const at::Tensor x = images(3, 8, 8) * 3;
  for (const int order : {0, 1, 2}) {
    ModelBuilder model;
    model.scalar("root", 1.4142135f);
    model.scalar("one", 1);
    model.scalar("half", 0.5f);
    model.node("Div", {"image", "root"}, "scaled");
    model.node("Erf", {"scaled"}, "erf");
    model.node("Add", {"erf", "one"}, "gate");
    if (order == 0) {  // x * (1 + erf) * 0.5
      model.node("Mul", {"image", "gate"}, "product");
      model.node("Mul", {"product", "half"}, "y");
    } else if (order == 1) {  // x * 0.5 * (1 + erf)
      model.node("Mul", {"image", "half"}, "halved");
      model.node("Mul", {"halved", "gate"}, "y");
    } else {
      model.node("Mul", {"half", "gate"}, "halved");
      model.node("Mul", {"halved", "image"}, "y");
    }
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.size(), 2u);
    EXPECT_EQ(last_function(network).kind, FunctionKind::gelu);
    expect_close(outputs(network, x), at::gelu(x));
  }
}

TEST(OnnxFunctions, AnErfThatIsNoGelusIsRefused) {
  const auto refused = [](const std::string& divisor, const std::string& last, const std::string& part) {
    ModelBuilder model;
    model.scalar("root", std::stof(divisor));
    model.scalar("two", 2);
    model.node("Div", {"image", "root"}, "scaled");
    model.node("Erf", {"scaled"}, "erf");
    model.node("Add", {"erf", "two"}, "gate");
    model.node("Mul", {"image", "gate"}, "product");
    model.node("Relu", {"erf"}, "rectified");
    EXPECT_NE(error_of([&] { imported(model.bytes(last)); }).find(part), std::string::npos) << last;
  };
  refused("1.5", "erf", "divided by the root of 2");
  refused("1.4142135", "erf", "an activation times or plus a number");
  refused("1.4142135", "rectified", "1 times an Erf plus 0");
  refused("1.4142135", "product", "1 times an Erf plus 2");
}

/// The gate of another value is no silu, and a gate that is used elsewhere too stays.
TEST(OnnxFunctions, OtherGatesStayProducts) {
  const at::Tensor x = images(3, 8, 8);
  ModelBuilder other;
  other.node("Relu", {"image"}, "positive");
  other.node("Sigmoid", {"positive"}, "gate");
  other.node("Mul", {"image", "gate"}, "y");
  const ImportedNetwork network = imported(other.bytes("y"));
  EXPECT_EQ(network.graph.nodes.back().op, Op::mul);
  expect_close(outputs(network, x), x * at::sigmoid(at::relu(x)));

  ModelBuilder shared;
  shared.node("Sigmoid", {"image"}, "gate");
  shared.node("Mul", {"image", "gate"}, "silu");
  shared.node("Add", {"silu", "gate"}, "y");
  expect_close(outputs(imported(shared.bytes("y")), x), at::silu(x) + at::sigmoid(x));
}

/// Squeeze and excite: the factor of a channel stands first or second.
TEST(OnnxFunctions, AFactorForEachChannel) {
  const at::Tensor x = images(3, 8, 8);
  for (const bool factor_first : {false, true}) {
    ModelBuilder model;
    model.node("GlobalAveragePool", {"image"}, "mean");
    model.node("Mul",
               factor_first ? std::vector<std::string>{"mean", "image"} : std::vector<std::string>{"image", "mean"},
               "y");
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.back().op, Op::mul);
    expect_close(outputs(network, x), x * x.mean({2, 3}, true));
  }
}

/// Pixels of 0 to 255, divided by 255, less a mean and divided by a deviation a channel, before a padded convolution.
TEST(OnnxFunctions, TheFileNormalizesTheImageItself) {
  const at::Tensor x = at::rand({2, 3, 8, 8}) * 255;
  for (const bool one_number : {false, true}) {
    ModelBuilder model;
    const auto weight = model.weight("conv.weight", {4, 3, 3, 3});
    const std::vector<int64_t> shape = one_number ? std::vector<int64_t>{1} : std::vector<int64_t>{1, 3, 1, 1};
    const auto mean = model.weight("mean", shape, 0.3f, 0.6f), std = model.weight("std", shape, 0.2f, 0.3f);
    model.scalar("most", 255);
    model.node("Div", {"image", "most"}, "unit");
    model.node("Sub", {"unit", "mean"}, "centred");
    model.node("Div", {"centred", "std"}, "normal");
    model.node("Conv", {"normal", "conv.weight"}, "y").ints("pads", {1, 1, 1, 1});
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.size(), 3u);
    ASSERT_EQ(network.notes.size(), 1u);
    EXPECT_NE(network.notes[0].find("of 0 to 255 with data.mean 0 and data.std 0.003921569"), std::string::npos);
    const at::Tensor normal = (x / 255 - tensor(mean, shape)) / tensor(std, shape);
    expect_close(outputs(network, x), at::conv2d(normal, tensor(weight, {4, 3, 3, 3}), {}, 1, 1));
  }
}

/// Constants before and behind each other, with one number or one a channel, on either side of the operator.
TEST(OnnxFunctions, ConstantsScaleAndShiftAnyValue) {
  const at::Tensor x = images(3, 8, 8);
  const std::vector<int64_t> shape = {3, 1, 1};
  ModelBuilder model;
  const auto weight = model.weight("conv.weight", {3, 3, 1, 1}), bias = model.weight("conv.bias", {3});
  const auto a = model.weight("a", shape), b = model.weight("b", shape), c = model.weight("c", shape, 0.5f, 2);
  model.scalar("three", 3);
  model.node("Conv", {"image", "conv.weight", "conv.bias"}, "conv");
  model.node("Mul", {"a", "conv"}, "scaled");  // goes into the convolution
  model.node("Add", {"scaled", "b"}, "layer");
  model.node("Relu", {"layer"}, "positive");
  model.node("Sub", {"three", "positive"}, "negative");
  model.node("Div", {"negative", "c"}, "divided");
  model.node("Sub", {"b", "divided"}, "turned");
  model.node("Add", {"turned", "three"}, "shifted");
  model.node("Relu", {"shifted"}, "again");
  model.node("Mul", {"three", "again"}, "y");
  const ImportedNetwork network = imported(model.bytes("y"));
  EXPECT_EQ(network.graph.nodes[2].op, Op::relu);
  const at::Tensor layer = at::conv2d(x, tensor(weight, {3, 3, 1, 1}), tensor(bias, {3})) * tensor(a, shape);
  const at::Tensor divided = (3 - at::relu(layer + tensor(b, shape))) / tensor(c, shape);
  expect_close(outputs(network, x), 3 * at::relu(tensor(b, shape) - divided + 3));
}

/// What others read too keeps its own weights.
TEST(OnnxFunctions, ALayerThatIsReadTwiceIsNotScaled) {
  const at::Tensor x = images(3, 8, 8);
  ModelBuilder model;
  const auto weight = model.weight("conv.weight", {3, 3, 1, 1});
  const auto factor = model.weight("factor", {1, 3, 1, 1});
  model.node("Conv", {"image", "conv.weight"}, "conv");
  model.node("Mul", {"conv", "factor"}, "scaled");
  model.node("Add", {"conv", "scaled"}, "y");
  const at::Tensor conv = at::conv2d(x, tensor(weight, {3, 3, 1, 1}));
  expect_close(outputs(imported(model.bytes("y")), x), conv + conv * tensor(factor, {1, 3, 1, 1}));
}

TEST(OnnxFunctions, AnyHardSigmoid) {
  const at::Tensor x = images(3, 8, 8) * 3;
  ModelBuilder keras, steep;
  keras.node("HardSigmoid", {"image"}, "y").named("gate");
  expect_close(outputs(imported(keras.bytes("y")), x), (x * 0.2 + 0.5).clamp(0, 1));
  steep.node("HardSigmoid", {"image"}, "y").real("alpha", -0.7f).real("beta", 0.125f);
  expect_close(outputs(imported(steep.bytes("y")), x), (x * -0.7f + 0.125f).clamp(0, 1));
}

TEST(OnnxFunctions, WhatHasNoTableIsRefusedByName) {
  const auto expect_refused = [](ModelBuilder& model, const std::string& part) {
    const std::string message = error_of([&] { imported(model.bytes("y")); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{3}, {3, 8, 8}, {8, 1}, {1, 1, 3, 1, 1}}) {
    ModelBuilder row({3, 8, 8});
    row.weight("w", shape);
    row.node("Mul", {"image", "w"}, "y");
    expect_refused(row, "expected an activation, or one float32 number, or one for each of 3 channels");
  }
  ModelBuilder difference;
  difference.node("Relu", {"image"}, "r");
  difference.node("Sub", {"image", "r"}, "y");
  expect_refused(difference, "(Sub): of two activations");

  ModelBuilder quotient;
  quotient.node("Sigmoid", {"image"}, "s");
  quotient.node("Div", {"image", "s"}, "y");
  expect_refused(quotient, "(Div): divides by an activation");

  ModelBuilder zero;
  zero.scalar("zero", 0);
  zero.node("Div", {"image", "zero"}, "y");
  expect_refused(zero, "divides by 0");

  ModelBuilder curved({3, 8, 8}, 20);
  curved.node("Gelu", {"image"}, "y").text("approximate", "tanh");
  expect_refused(curved, "approximate 'tanh'; expected none");

  ModelBuilder sizes;
  sizes.weight("w", {3, 3, 3, 3});
  sizes.node("Conv", {"image", "w"}, "smaller");
  sizes.node("Mul", {"image", "smaller"}, "y").named("product");
  expect_refused(sizes, "node 'product' (Mul): ");
}

}  // namespace
}  // namespace octet
