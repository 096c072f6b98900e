// Functions of one value, and products, as exporters write them.
#include <ATen/ATen.h>

#include "tests/error_of.h"
#include "tests/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

const Curve& last_curve(const ImportedNetwork& network) {
  EXPECT_EQ(network.graph.nodes.back().op, Op::lookup);
  return network.graph.nodes.back().curve;
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
    EXPECT_EQ(last_curve(network).function, Function::silu);
    expect_close(outputs(network, x), at::silu(x));
  }
  ModelBuilder hard;
  hard.node("HardSigmoid", {"image"}, "gate").real("alpha", 1.0f / 6);
  hard.node("Mul", {"image", "gate"}, "y");
  expect_close(outputs(imported(hard.bytes("y")), x), at::hardswish(x));
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
    EXPECT_EQ(last_curve(network).function, Function::hard_swish);
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
    EXPECT_EQ(last_curve(network).function, Function::gelu);
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

TEST(OnnxFunctions, WhatHasNoTableIsRefusedByName) {
  const auto expect_refused = [](ModelBuilder& model, const std::string& part) {
    const std::string message = error_of([&] { imported(model.bytes("y")); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  ModelBuilder steep;
  steep.node("HardSigmoid", {"image"}, "y").named("gate");
  expect_refused(steep, "node 'gate' (HardSigmoid): alpha 0.2");

  ModelBuilder number;
  number.scalar("three", 3);
  number.node("Add", {"image", "three"}, "shifted");
  number.node("Relu", {"shifted"}, "y").named("after");
  expect_refused(number, "node 'after' (Relu): input 'shifted' is 1 times an activation plus 3");
  number.node("Identity", {"shifted"}, "z");
  EXPECT_NE(error_of([&] { imported(number.bytes("z")); }).find("output 'z': an activation times or plus a number"),
            std::string::npos);

  ModelBuilder row;
  row.weight("w", {3, 1, 1});
  row.node("Mul", {"image", "w"}, "y");
  expect_refused(row, "input 'w' is [3, 1, 1]; expected an activation, or one float32 number");

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
