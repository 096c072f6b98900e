// SPDX-License-Identifier: Apache-2.0
// Operators without weights, and what the exporters write around them.
#include <ATen/ATen.h>

#include <array>
#include <functional>
#include <limits>

#include "tests/error_of.h"
#include "tests/net/onnx/outputs.h"

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
  model.node("Clip", {"image", "zero"}, "c0");
  model.scalar("infinity", std::numeric_limits<float>::infinity());
  model.scalar("below", -std::numeric_limits<float>::infinity());
  model.node("Clip", {"c0", "zero", "infinity"}, "c1");
  model.node("Clip", {"c1", "below", "infinity"}, "c2");
  model.node("Clip", {"c2"}, "c");
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
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    ModelBuilder model({3, 1, 1});
    model.node("Relu", {"image"}, "r");
    model.node("Flatten", {"r"}, "row");
    model.node(op, {"row"}, "p").integer("axis", -1);
    const ImportedNetwork network = imported(model.bytes("p"));
    EXPECT_EQ(network.graph.nodes.size(), 2u) << op;
    ASSERT_EQ(network.notes.size(), 1u) << op;
    EXPECT_NE(network.notes[0].find("logits"), std::string::npos);
    model.node("Relu", {"p"}, "y").named("last");
    EXPECT_NE(error_of([&] { imported(model.bytes("y")); }).find("node 'last' (Relu): comes after a Softmax"),
              std::string::npos);
  }
}

/// As torchvision's ShuffleNetV2 and a U-Net have them: x.chunk(2, 1), x[:, 1:], nearest Upsample.
TEST(OnnxOperators, ChannelsAreSplitAndPixelsRepeated) {
  const at::Tensor x = images(5, 4, 3);
  const auto model_of = [](const std::function<void(ModelBuilder&)>& add) {
    ModelBuilder model({5, 4, 3}, 13);
    add(model);
    return imported(model.bytes("y"));
  };
  const auto split = [&](const std::function<void(ModelBuilder&)>& add) {
    return model_of([&](ModelBuilder& model) {
      add(model);
      model.node("Concat", {"b", "a"}, "y").integer("axis", 1);
    });
  };
  const at::Tensor swapped = at::cat({x.narrow(1, 3, 2), x.narrow(1, 0, 3)}, 1);
  expect_close(outputs(split([](ModelBuilder& m) {
                         m.integers("parts", {3, 2});
                         m.node("Split", {"image", "parts"}, "a").output("b").integer("axis", 1);
                       }),
                       x),
               swapped);
  expect_close(outputs(split([](ModelBuilder& m) {  // the last part is the smaller one
                         m.node("Split", {"image"}, "a").output("b").integer("axis", -3).integer("num_outputs", 2);
                       }),
                       x),
               swapped);
  expect_close(outputs(model_of([](ModelBuilder& m) {
                         m.integers("from", {1, 0});
                         m.integers("to", {-1, INT64_MAX});
                         m.integers("axes", {1, 3});
                         m.node("Slice", {"image", "from", "to", "axes"}, "y");
                       }),
                       x),
               x.narrow(1, 1, 3));
  const at::Tensor larger = x.repeat_interleave(2, 2).repeat_interleave(3, 3);
  for (const bool centred : {false, true}) {
    expect_close(outputs(model_of([&](ModelBuilder& m) {
                           m.reals("scales", {1, 1, 2, 3});
                           m.node("Resize", {"image", "", "scales"}, "y")
                               .text("mode", "nearest")
                               .text("coordinate_transformation_mode", centred ? "half_pixel" : "asymmetric")
                               .text("nearest_mode", centred ? "round_prefer_floor" : "floor");
                         }),
                         x),
                 larger);
  }
  expect_close(outputs(model_of([](ModelBuilder& m) {
                         m.integers("sizes", {1, 5, 8, 9});
                         m.node("Resize", {"image", "", "", "sizes"}, "y").text("mode", "nearest");
                       }),
                       x),
               larger);
}

TEST(OnnxOperators, ChannelsAreShuffledAndBecomePixels) {
  const at::Tensor x = images(12, 4, 3);
  for (const bool open : {false, true}) {
    ModelBuilder model({12, 4, 3});
    model.integers("groups", {open ? -1 : 0, 3, 4, 4, 3});
    model.integers("channels", {open ? -1 : 0, 12, 4, 3});
    model.node("Reshape", {"image", "groups"}, "g");
    model.node("Transpose", {"g"}, "t").ints("perm", {0, 2, 1, 3, 4});
    model.node("Reshape", {"t", "channels"}, "y").integer("allowzero", open ? 1 : 0);  // as the dynamo exporter has it
    expect_close(outputs(imported(model.bytes("y")), x), at::channel_shuffle(x, 3));
    model.integers("others", {0, -1, 4, 3});  // torchvision 0.14's ShuffleNetV2
    model.node("Reshape", {"t", "others"}, "z");
    expect_close(outputs(imported(model.bytes("z")), x), at::channel_shuffle(x, 3));
    model.integers("wrong", {0, -1, 3, 4});
    model.node("Reshape", {"t", "wrong"}, "w");
    EXPECT_NE(error_of([&] { imported(model.bytes("w")); }).find("expected a channel shuffle"), std::string::npos);
    EXPECT_NE(error_of([&] { imported(model.bytes("t")); }).find("output 't': has five dimensions"), std::string::npos);
    model.node("Relu", {"g"}, "r");
    EXPECT_NE(error_of([&] { imported(model.bytes("r")); }).find("in a channel shuffle only"), std::string::npos);
  }
  const at::Tensor neighbours = x.view({2, 4, 3, 4, 3}).transpose(1, 2).reshape({2, 12, 4, 3});
  for (const std::string mode : {"CRD", "DCR"}) {
    ModelBuilder model({12, 4, 3});
    model.node("DepthToSpace", {"image"}, "y").integer("blocksize", 2).text("mode", mode);
    expect_close(outputs(imported(model.bytes("y")), x), at::pixel_shuffle(mode == "CRD" ? x : neighbours, 2));
  }
}

TEST(OnnxOperators, OnePixelIsRepeatedHoweverItIsResized) {
  const at::Tensor x = images(5, 1, 1);
  for (const char* coordinates : {"half_pixel", "align_corners", "pytorch_half_pixel"}) {
    ModelBuilder model({5, 1, 1});
    model.integers("sizes", {1, 5, 7, 6});
    model.node("Resize", {"image", "", "", "sizes"}, "y")
        .text("mode", "linear")
        .text("coordinate_transformation_mode", coordinates)
        .text("keep_aspect_ratio_policy", "stretch");
    expect_close(outputs(imported(model.bytes("y")), x), x.expand({2, 5, 7, 6}).contiguous());
  }
}

TEST(OnnxOperators, BilinearResizeIsPyTorchsInterpolate) {
  const at::Tensor x = images(3, 5, 4);
  for (const char* coordinates : {"half_pixel", "pytorch_half_pixel"}) {
    ModelBuilder model({3, 5, 4});
    model.reals("scales", {1, 1, 2, 3});
    model.node("Resize", {"image", "", "scales"}, "y")
        .text("mode", "linear")
        .text("coordinate_transformation_mode", coordinates);
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.back().op, Op::resize_bilinear);
    expect_close(outputs(network, x), at::upsample_bilinear2d(x, {10, 12}, false));
  }
}

TEST(OnnxOperators, APRelusSlopesAreOneOrOneForEachChannel) {
  const at::Tensor x = images(3, 4, 5);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1, 1}, {3, 1, 1}, {1, 3, 1, 1}}) {
    ModelBuilder model({3, 4, 5});
    const at::Tensor slopes = tensor(model.weight("act.weight", shape), shape);
    model.node("PRelu", {"image", "act.weight"}, "y");
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.back().op, Op::prelu);
    EXPECT_EQ(network.graph.nodes.back().name, "act");
    expect_close(outputs(network, x), at::where(x.lt(0), x * slopes, x));
  }
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3}, {4, 5}, {3, 4, 5}, {2, 1, 1}}) {
    ModelBuilder model({3, 4, 5});
    model.weight("slopes", shape);
    model.node("PRelu", {"image", "slopes"}, "y");
    EXPECT_NE(error_of([&] { imported(model.bytes("y")); }).find("one float32 number, or one for each of 3 channels"),
              std::string::npos)
        << error_of([&] { imported(model.bytes("y")); });
  }
}

TEST(OnnxOperators, AMaxPoolsLastWindowMayHangOverTheEdge) {
  for (const auto& [size, kernel, stride, pad] :
       std::vector<std::array<int64_t, 4>>{{8, 3, 2, 0},
                                           {9, 2, 2, 0},
                                           {8, 3, 3, 1},
                                           {9, 4, 2, 1},
                                           {8, 2, 3, 0},
                                           // of the last window one pixel or two lie in the image
                                           {10, 3, 3, 0},
                                           {8, 3, 2, 1},
                                           {9, 5, 4, 0},
                                           {7, 4, 3, 2}}) {
    const at::Tensor x = images(3, size, size);
    ModelBuilder model({3, size, size});
    model.node("MaxPool", {"image"}, "y")
        .ints("kernel_shape", {kernel, kernel})
        .ints("strides", {stride, stride})
        .ints("pads", {pad, pad, pad, pad})
        .integer("ceil_mode", 1);
    expect_close(outputs(imported(model.bytes("y")), x),
                 at::max_pool2d(x, {kernel, kernel}, {stride, stride}, {pad, pad}, {1, 1}, /*ceil_mode=*/true));
  }
}

TEST(OnnxOperators, SeveralOutputsKeepTheirOrder) {
  ModelBuilder model;
  model.node("Relu", {"image"}, "a");
  model.node("GlobalAveragePool", {"a"}, "b");
  const Graph graph = imported(model.bytes(std::vector<std::string>{"b", "a"})).graph;
  EXPECT_EQ(graph.outputs, (std::vector<int>{2, 1}));
  EXPECT_EQ(imported(model.bytes(std::vector<std::string>{"a", "b"})).graph.outputs, (std::vector<int>{1, 2}));
  EXPECT_EQ(error_of([&] { graph.classes(); }),
            "test gives 'b' [3, 1, 1], 'a' [3, 8, 8]; a classifier gives one output, [classes, 1, 1]");
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

  ModelBuilder wide;
  wide.node("MaxPool", {"image"}, "y").ints("kernel_shape", {3, 3}).ints("pads", {2, 0, 0, 0});
  expect_refused(wide, "pad 2 is more than half of kernel 3");

  ModelBuilder outside;
  outside.node("MaxPool", {"image"}, "y").ints("kernel_shape", {3, 3}).ints("pads", {0, 0, 0, 3});
  expect_refused(outside, "pad 3 behind an image of 8 pixels: the last window has none of them");

  ModelBuilder ceiling;
  ceiling.node("AveragePool", {"image"}, "y")
      .ints("kernel_shape", {3, 3})
      .ints("strides", {2, 2})
      .integer("ceil_mode", 1);
  expect_refused(ceiling, "ceil_mode with a last window that hangs over an image of 8x8 padded pixels");
  ModelBuilder another_size({3, 9, 9});  // as the message says
  another_size.node("AveragePool", {"image"}, "y")
      .ints("kernel_shape", {3, 3})
      .ints("strides", {2, 2})
      .integer("ceil_mode", 1);
  EXPECT_EQ(refusal(another_size), "");

  ModelBuilder uncounted;
  uncounted.node("AveragePool", {"image"}, "y").ints("kernel_shape", {3, 3}).ints("pads", {1, 1, 1, 1});
  expect_refused(uncounted, "count_include_pad 0");

  ModelBuilder new_attribute;
  new_attribute.node("Relu", {"image"}, "y").integer("leak", 1);
  expect_refused(new_attribute, "attribute 'leak' is nothing that octet knows");

  const auto resized = [&](const std::vector<float>& scales, const std::string& mode, const std::string& rounding) {
    ModelBuilder model;
    model.reals("scales", scales);
    model.node("Resize", {"image", "", "scales"}, "y").text("mode", mode).text("nearest_mode", rounding);
    return model;
  };
  ModelBuilder corners;
  corners.reals("scales", {1, 1, 2, 2});
  corners.node("Resize", {"image", "", "scales"}, "y")
      .text("mode", "linear")
      .text("coordinate_transformation_mode", "align_corners");
  expect_refused(corners, "mode 'linear', align_corners");
  const auto expect_resize_refused = [&](ModelBuilder model, const std::string& part) { expect_refused(model, part); };
  expect_resize_refused(resized({1, 1, 2, 2}, "cubic", "floor"), "expected pixels repeated");
  expect_resize_refused(resized({1, 1, 1.5f, 2}, "linear", "floor"), "by 1.5 x 2; expected integers");
  expect_resize_refused(resized({1, 1, 2, 2}, "nearest", "floor"), "half_pixel, floor; expected pixels repeated");
  expect_resize_refused(resized({1, 1, 1.5f, 2}, "nearest", "round_prefer_ceil"), "by 1.5 x 2; expected integers");
  expect_resize_refused(resized({1, 2, 2, 2}, "nearest", "round_prefer_ceil"), "expected [1, 1, vertical, horizontal]");

  const auto sliced = [&](int64_t from, int64_t to, int64_t axis, int64_t step, const std::string& part) {
    ModelBuilder model;
    model.integers("from", {from});
    model.integers("to", {to});
    model.integers("axis", {axis});
    model.integers("step", {step});
    model.node("Slice", {"image", "from", "to", "axis", "step"}, "y");
    expect_refused(model, part);
  };
  sliced(7, -9, 2, -1, "step -1; expected 1 and more");
  sliced(2, 2, 1, 1, "takes nothing of axis 1");
  sliced(8, 100, 2, 2, "takes nothing of axis 2");
  sliced(1, 100, 0, 1, "of some images of the batch");
  sliced(0, 3, 4, 1, "axis 4 of 4 dimensions");

  const auto transposed = [&](int64_t kernel, int64_t stride, const std::string& part) {
    ModelBuilder model;
    model.weight("w", {3, 2, kernel, kernel});
    model.node("ConvTranspose", {"image", "w"}, "y").ints("strides", {stride, stride});
    expect_refused(model, part);
  };
  transposed(2, 3, "expected outputs that are blocks");
  transposed(3, 2, "expected outputs that are blocks");

  ModelBuilder parts;
  parts.integers("parts", {2, 2});
  parts.node("Split", {"image", "parts"}, "y").output("z").integer("axis", 1);
  expect_refused(parts, "3 channels into 2 outputs of [2, 2]");

  ModelBuilder foreign;
  foreign.node("Relu", {"image"}, "y").domain("com.microsoft");
  expect_refused(foreign, "an operator of 'com.microsoft'");
}

}  // namespace
}  // namespace octet
