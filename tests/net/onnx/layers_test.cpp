// SPDX-License-Identifier: Apache-2.0
// Imported networks against LibTorch's operators on the same weights.
#include <ATen/ATen.h>

#include "tests/net/onnx/outputs.h"

namespace octet {
namespace {

using namespace test;

TEST(OnnxLayers, ConvolutionWithEveryAttribute) {
  ModelBuilder model({4, 9, 11});
  const auto weight = model.weight("features.0.weight", {6, 2, 3, 2});
  const auto bias = model.weight("features.0.bias", {6});
  model.node("Conv", {"image", "features.0.weight", "features.0.bias"}, "y")
      .ints("kernel_shape", {3, 2})
      .ints("strides", {2, 1})
      .ints("pads", {1, 2, 1, 2})
      .ints("dilations", {1, 3})
      .integer("group", 2);
  const ImportedNetwork network = imported(model.bytes("y"));
  EXPECT_EQ(network.graph.nodes.back().name, "features.0");
  EXPECT_EQ(network.opset, 17);
  const at::Tensor x = images(4, 9, 11);
  expect_close(outputs(network, x),
               at::conv2d(x, tensor(weight, {6, 2, 3, 2}), tensor(bias, {6}), {2, 1}, {1, 2}, {1, 3}, 2));
}

/// PyTorch's ZeroPad2d before a convolution, and what TensorFlow's "same" does at stride 2.
TEST(OnnxLayers, PaddingDiffersFromSideToSide) {
  const at::Tensor x = images(3, 8, 8);
  for (const bool own : {false, true}) {
    ModelBuilder model;
    const auto weight = model.weight("w", {4, 3, 3, 3});
    model.integers("pads", {0, 0, 0, 0, 0, 0, 1, 2});
    if (!own) model.node("Pad", {"image", "pads"}, "p");
    auto conv = model.node("Conv", {own ? "image" : "p", "w"}, "y").ints("strides", {2, 2});
    if (own) conv.ints("pads", {0, 0, 1, 2});
    expect_close(outputs(imported(model.bytes("y")), x),
                 at::conv2d(at::constant_pad_nd(x, {0, 2, 0, 1}), tensor(weight, {4, 3, 3, 3}), {}, 2));
  }
  ModelBuilder same;
  const auto weight = same.weight("w", {4, 3, 3, 3});
  same.node("Conv", {"image", "w"}, "y").text("auto_pad", "SAME_UPPER").ints("strides", {2, 2});
  expect_close(outputs(imported(same.bytes("y")), x),
               at::conv2d(at::constant_pad_nd(x, {0, 1, 0, 1}), tensor(weight, {4, 3, 3, 3}), {}, 2));
}

TEST(OnnxLayers, TransposedConvolutions) {
  const at::Tensor x = images(5, 4, 3);
  struct Case {
    int64_t kernel, stride, pad, extra;
  };
  for (const Case& c :
       {Case{2, 2, 0, 0}, Case{4, 2, 1, 0}, Case{3, 2, 1, 1}, Case{3, 3, 0, 0}, Case{3, 1, 1, 0}, Case{5, 3, 1, 0}}) {
    ModelBuilder model({5, 4, 3});
    const auto weight = model.weight("up.weight", {5, 2, c.kernel, c.kernel}), bias = model.weight("up.bias", {2});
    model.node("ConvTranspose", {"image", "up.weight", "up.bias"}, "y")
        .ints("strides", {c.stride, c.stride})
        .ints("pads", {c.pad, c.pad, c.pad, c.pad})
        .ints("output_padding", {c.extra, c.extra});
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes[1].name, "up");
    expect_close(outputs(network, x), at::conv_transpose2d(x, tensor(weight, {5, 2, c.kernel, c.kernel}),
                                                           tensor(bias, {2}), c.stride, c.pad, c.extra));
  }
}

TEST(OnnxLayers, AutomaticPadding) {
  for (const std::string mode : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    ModelBuilder model({3, 9, 7});
    const auto weight = model.weight("w", {5, 3, 3, 5});
    model.node("Conv", {"image", "w"}, "y").text("auto_pad", mode).ints("strides", {2, 1});
    const at::Tensor x = images(3, 9, 7);
    const std::vector<int64_t> pads = mode == "VALID" ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{1, 2};
    expect_close(outputs(imported(model.bytes("y")), x), at::conv2d(x, tensor(weight, {5, 3, 3, 5}), {}, {2, 1}, pads));
  }
}

/// BatchNormalization with another epsilon, behind a convolution and behind a Relu.
TEST(OnnxLayers, BatchNormWithItsEpsilon) {
  for (const bool behind_relu : {false, true}) {
    ModelBuilder model;
    const auto weight = model.weight("conv.weight", {4, 3, 1, 1});
    const auto gamma = model.weight("bn.weight", {4}), beta = model.weight("bn.bias", {4});
    const auto mean = model.weight("bn.running_mean", {4}), var = model.weight("bn.running_var", {4}, 0.01f, 0.1f);
    model.node("Conv", {"image", "conv.weight"}, "c");
    if (behind_relu) model.node("Relu", {"c"}, "r");
    model
        .node("BatchNormalization",
              {behind_relu ? "r" : "c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, "y")
        .real("epsilon", 0.02f)
        .integer("training_mode", 0);
    const ImportedNetwork network = imported(model.bytes("y"));
    EXPECT_EQ(network.graph.nodes.back().op, behind_relu ? Op::conv2d : Op::batch_norm);
    EXPECT_EQ(network.graph.nodes.back().name, "bn");
    const at::Tensor x = images(3, 8, 8);
    at::Tensor y = at::conv2d(x, tensor(weight, {4, 3, 1, 1}));
    if (behind_relu) y = at::relu(y);
    expect_close(outputs(network, x), at::batch_norm(y, tensor(gamma, {4}), tensor(beta, {4}), tensor(mean, {4}),
                                                     tensor(var, {4}), false, 0.1, 0.02, false));
  }
}

/// As torch.onnx.export(training=TrainingMode.TRAINING) writes it: with outputs for the running statistics, four before
/// opset 14, and perhaps without a convolution of its own (DenseNet).
TEST(OnnxLayers, BatchNormInTrainingModeTrainsOnBatches) {
  for (const int opset : {13, 17}) {
    for (const bool behind_relu : {false, true}) {
      ModelBuilder model({3, 8, 8}, opset);
      const auto weight = model.weight("conv.weight", {4, 3, 1, 1}), bias = model.weight("conv.bias", {4});
      const auto gamma = model.weight("bn.weight", {4}), beta = model.weight("bn.bias", {4});
      const auto mean = model.weight("bn.running_mean", {4}), var = model.weight("bn.running_var", {4}, 0.2f, 3);
      model.node("Conv", {"image", "conv.weight", "conv.bias"}, "c");
      if (behind_relu) model.node("Relu", {"c"}, "r");
      auto norm =
          model.node("BatchNormalization",
                     {behind_relu ? "r" : "c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, "y");
      norm.real("epsilon", 0.02f).real("momentum", 0.95f).output("mean").output("var");
      if (opset == 17) norm.integer("training_mode", 1);
      if (opset == 13) norm.output("saved_mean").output("saved_var");
      const ImportedNetwork network = imported(model.bytes("y"));
      EXPECT_EQ(network.graph.nodes.back().op, Op::batch_norm);
      EXPECT_EQ(network.graph.nodes.back().name, "bn");
      const std::vector<std::string>& notes = network.notes;
      ASSERT_EQ(notes.size(), 2u);
      EXPECT_NE(notes[0].find("in training mode"), std::string::npos);
      EXPECT_NE(notes[1].find("momentum 0.95: octet trains with 0.9"), std::string::npos) << notes[1];

      const at::Tensor x = images(3, 8, 8);
      at::Tensor y = at::conv2d(x, tensor(weight, {4, 3, 1, 1}), tensor(bias, {4}));
      if (behind_relu) y = at::relu(y);
      for (const bool training : {false, true}) {
        const WalkMode mode{.training = training, .batch_norm_training = training};
        expect_close(outputs(network, x, mode),
                     at::batch_norm(y, tensor(gamma, {4}), tensor(beta, {4}), tensor(mean, {4}), tensor(var, {4}),
                                    training, 0.1, 0.02, false));
      }
    }
  }
}

TEST(OnnxLayers, ANegativeVarianceIsNamedWithItsTensor) {
  ModelBuilder model;
  for (const char* name : {"g", "b", "m"}) model.weight(name, {3});
  model.weight("bn.running_var", {3}, -1, -0.5f);
  model.node("BatchNormalization", {"image", "g", "b", "m", "bn.running_var"}, "y");
  try {
    imported(model.bytes("y"));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(" at [0] of tensor 'bn.running_var' and epsilon "), std::string::npos)
        << error.what();
  }
}

TEST(OnnxLayers, BatchNormOfASharedConvolutionKeepsBoth) {
  ModelBuilder model;
  model.weight("w", {4, 3, 1, 1});
  for (const char* name : {"g", "b", "m"}) model.weight(name, {4});
  model.weight("v", {4}, 0.5f, 1);
  model.node("Conv", {"image", "w"}, "c");
  model.node("BatchNormalization", {"c", "g", "b", "m", "v"}, "n");
  model.node("Add", {"n", "c"}, "y");
  EXPECT_EQ(imported(model.bytes("y")).graph.nodes[2].op, Op::conv2d);
}

TEST(OnnxLayers, GemmBothWaysWithFactors) {
  for (const int64_t by_rows : {0, 1}) {
    ModelBuilder model({6, 1, 1});
    const std::vector<int64_t> shape = by_rows ? std::vector<int64_t>{4, 6} : std::vector<int64_t>{6, 4};
    const auto weight = model.weight("fc.weight", shape), bias = model.weight("fc.bias", {4});
    model.node("Flatten", {"image"}, "row");
    model.node("Gemm", {"row", "fc.weight", "fc.bias"}, "y")
        .integer("transB", by_rows)
        .real("alpha", 0.5f)
        .real("beta", 3);
    const at::Tensor x = images(6, 1, 1), w = tensor(weight, shape);
    expect_close(outputs(imported(model.bytes("y")), x),
                 at::matmul(x.reshape({2, 6}), by_rows ? w.t() : w) * 0.5 + tensor(bias, {4}) * 3);
  }
}

TEST(OnnxLayers, MatMulAndTheAddBehindIt) {
  ModelBuilder model({2, 3, 2});
  const auto weight = model.weight("w", {12, 5}), bias = model.weight("b", {5});
  model.node("Flatten", {"image"}, "row");
  model.node("MatMul", {"row", "w"}, "m").named("head");
  model.node("Add", {"b", "m"}, "y");
  const ImportedNetwork network = imported(model.bytes("y"));
  EXPECT_EQ(network.graph.nodes.back().name, "head");
  const at::Tensor x = images(2, 3, 2);
  expect_close(outputs(network, x), at::matmul(x.reshape({2, 12}), tensor(weight, {12, 5})) + tensor(bias, {5}));
}

TEST(OnnxLayers, SharedWeightsBecomeACopyForEachNode) {
  ModelBuilder model;
  const auto weight = model.weight("conv.weight", {3, 3, 3, 3});
  for (const auto& [from, to] : {std::pair{"image", "a"}, std::pair{"a", "b"}})
    model.node("Conv", {from, "conv.weight"}, to).ints("pads", {1, 1, 1, 1});
  const ImportedNetwork network = imported(model.bytes("b"));
  EXPECT_EQ(network.graph.nodes[1].name, "conv");
  EXPECT_EQ(network.graph.nodes[2].name, "b");
  const at::Tensor x = images(3, 8, 8), w = tensor(weight, {3, 3, 3, 3});
  expect_close(outputs(network, x), at::conv2d(at::conv2d(x, w, {}, 1, 1), w, {}, 1, 1));
}

}  // namespace
}  // namespace octet
