// Operators without weights, and what the exporters write around them.
#include <ATen/ATen.h>

#include "tests/error_of.h"
#include "tests/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

TEST(OnnxOperators, Pools) {
  const at::Tensor x = images(3, 10, 8);
  ModelBuilder largest({3, 10, 8});
  largest.node("MaxPool", {"image"}, "y")
      .ints("kernel_shape", {3, 2})
      .ints("strides", {2, 1})
      .ints("pads", {1, 0, 1, 0});
  expect_close(outputs(imported(largest.bytes("y")), x), at::max_pool2d(x, {3, 2}, {2, 1}, {1, 0}));

  ModelBuilder average({3, 10, 8});  // as the TorchScript exporter writes count_include_pad
  average.integers("pads", {0, 0, 1, 1, 0, 0, 1, 1});
  average.scalar("zero", 0);
  average.node("Pad", {"image", "pads", "zero"}, "padded").text("mode", "constant");
  average.node("AveragePool", {"padded"}, "y").ints("kernel_shape", {3, 3}).ints("strides", {1, 1});
  expect_close(outputs(imported(average.bytes("y")), x), at::avg_pool2d(x, {3, 3}, {1, 1}, {1, 1}));

  ModelBuilder global({3, 10, 8});
  global.node("GlobalAveragePool", {"image"}, "y");
  expect_close(outputs(imported(global.bytes("y")), x), x.mean({2, 3}));
}

TEST(OnnxOperators, MeansOverHeightAndWidth) {
  const at::Tensor x = images(3, 4, 5);
  for (const int opset : {11, 18}) {
    ModelBuilder model({3, 4, 5}, opset);
    model.integers("axes", {-1, -2});
    if (opset == 18) model.node("ReduceMean", {"image", "axes"}, "y").integer("keepdims", 0);
    if (opset == 11) model.node("ReduceMean", {"image"}, "y").ints("axes", {2, 3});
    expect_close(outputs(imported(model.bytes("y")), x), x.mean({2, 3}));
  }
}

TEST(OnnxOperators, ElementwiseAndJoins) {
  ModelBuilder model;
  model.scalar("zero", 0);
  model.scalar("six", 6);
  model.node("Relu", {"image"}, "a");
  model.node("Clip", {"image", "zero", "six"}, "b").named("six");
  model.node("Clip", {"image", "zero"}, "c");
  model.node("Identity", {"c"}, "d");
  model.node("Add", {"a", "b"}, "e");
  model.node("Concat", {"e", "d", "image"}, "f").integer("axis", -3);
  model.node("Dropout", {"f"}, "y");
  const ImportedNetwork network = imported(model.bytes("y"));
  const at::Tensor x = images(3, 8, 8) * 4;
  expect_close(outputs(network, x), at::cat({at::relu(x) + at::clamp(x, 0, 6), at::relu(x), x}, 1));
  EXPECT_EQ(network.graph.nodes.back().op, Op::dropout);
}

/// x.view(x.size(0), -1), written out by an exporter that folds nothing.
TEST(OnnxOperators, ShapeArithmetic) {
  ModelBuilder model({2, 3, 4});
  model.integer("first", 0);
  model.integers("axes", {0});
  model.integers("rest", {-1});
  const auto weight = model.weight("w", {24, 2});
  model.node("Shape", {"image"}, "shape");
  model.node("Gather", {"shape", "first"}, "batch").integer("axis", 0);
  model.node("Unsqueeze", {"batch", "axes"}, "row_batch");
  model.node("Concat", {"row_batch", "rest"}, "target").integer("axis", 0);
  model.node("Cast", {"target"}, "cast").integer("to", 7);
  model.node("Reshape", {"image", "cast"}, "row").integer("allowzero", 1);
  model.node("MatMul", {"row", "w"}, "y");
  const at::Tensor x = images(2, 3, 4);
  expect_close(outputs(imported(model.bytes("y")), x), at::matmul(x.reshape({2, 24}), tensor(weight, {24, 2})));
}

TEST(OnnxOperators, WhatTheOutputDoesNotNeedIsLeftOut) {
  ModelBuilder model;
  model.node("Relu", {"image"}, "y");
  model.node("NonMaxSuppression", {"nothing"}, "z");
  model.node("Sigmoid", {"y"}, "s");
  EXPECT_EQ(imported(model.bytes("y")).graph.nodes.size(), 2u);
}

TEST(OnnxOperators, SoftmaxOnlyAtTheEnd) {
  ModelBuilder model({3, 1, 1});
  model.node("Relu", {"image"}, "r");
  model.node("Flatten", {"r"}, "row");
  model.node("Softmax", {"row"}, "p").integer("axis", -1);
  const ImportedNetwork network = imported(model.bytes("p"));
  ASSERT_EQ(network.notes.size(), 1u);
  EXPECT_NE(network.notes[0].find("logits"), std::string::npos);
  model.node("Relu", {"p"}, "y").named("last");
  EXPECT_NE(error_of([&] { imported(model.bytes("y")); }).find("node 'last' (Relu): comes after a Softmax"),
            std::string::npos);
}

TEST(OnnxOperators, OtherOperatorsAreRefusedByName) {
  const auto refusal = [](ModelBuilder& model) { return error_of([&] { imported(model.bytes("y")); }); };
  const auto expect_refused = [&](ModelBuilder& model, const std::string& part) {
    const std::string message = refusal(model);
    EXPECT_NE(message.find("test.onnx: node "), std::string::npos) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  ModelBuilder unknown;
  unknown.node("Einsum", {"image"}, "y").named("mix");
  expect_refused(unknown, "node 'mix' (Einsum): octet has no such operator; it imports Add, ");

  ModelBuilder uneven;
  uneven.weight("w", {4, 3, 3, 3});
  uneven.node("Conv", {"image", "w"}, "y").ints("pads", {0, 0, 1, 1});
  expect_refused(uneven, "pads 0 before and 1 behind");

  ModelBuilder ceiling;
  ceiling.node("MaxPool", {"image"}, "y").ints("kernel_shape", {3, 3}).ints("strides", {2, 2}).integer("ceil_mode", 1);
  expect_refused(ceiling, "ceil_mode");

  ModelBuilder uncounted;
  uncounted.node("AveragePool", {"image"}, "y").ints("kernel_shape", {3, 3}).ints("pads", {1, 1, 1, 1});
  expect_refused(uncounted, "count_include_pad 0");

  ModelBuilder new_attribute;
  new_attribute.node("Relu", {"image"}, "y").integer("leak", 1);
  expect_refused(new_attribute, "attribute 'leak' is nothing that octet knows");

  ModelBuilder bounds;
  bounds.scalar("low", -1);
  bounds.scalar("high", 1);
  bounds.node("Clip", {"image", "low", "high"}, "y");
  expect_refused(bounds, "expected 0 .. 6 (ReLU6)");

  ModelBuilder foreign;
  foreign.node("Relu", {"image"}, "y").domain("com.microsoft");
  expect_refused(foreign, "an operator of 'com.microsoft'");
}

}  // namespace
}  // namespace octet
