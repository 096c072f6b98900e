// SPDX-License-Identifier: Apache-2.0
// What is written means what the engine computes: every edge of a QDQ model against the reference's codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "onnx.pb.h"
#include "src/engine/engine.h"
#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/random_network.h"
#include "tests/error_of.h"
#include "tests/net/onnx/qdq_walk.h"
#include "tests/net/onnx/with_attention.h"
#include "tests/net/onnx/with_outputs.h"

namespace octet {
namespace {

using namespace test;

constexpr int kImages = 2;

Int8Graph random_int8(const std::string& name, ActivationScheme scheme) {
  ModelSpec model;
  model.name = name;
  model.input = {3, 20, 20};
  model.width = name == "unet2" ? 0.125 : 1;
  model.shortcut = 'A';
  QuantSpec spec;
  spec.activation = scheme;
  return random_int8_graph(build_model(model), spec, 3);
}

/// A network with a flatten of more than one pixel, as no network of the zoo has it.
Int8Graph with_flatten() {
  GraphBuilder builder("flat", {3, 9, 9}, false);
  int x = builder.conv("conv", 0, {.out_channels = 5, .kernel = 3, .stride = 2, .bias = true});
  x = builder.unary(Op::relu6, "relu6", x);
  x = builder.unary(Op::flatten, "flatten", x);
  x = builder.linear("hidden", x, 12);
  x = builder.unary(Op::relu, "relu", x);
  builder.linear("fc", x, 4);
  QuantSpec spec;
  spec.activation = ActivationScheme::affine_u8;
  return random_int8_graph(builder.finish(), spec, 4);
}

/// Every function, and products of both kinds: with a factor for each channel from a convolution and from a linear.
Int8Graph with_functions(ActivationScheme scheme) {
  GraphBuilder builder("functions", {3, 9, 9}, false);
  int x = builder.conv("conv", 0, {.out_channels = 8, .kernel = 3, .pad = 1, .bias = true});
  for (const Named<FunctionKind>& function : kFunctions) {
    x = builder.lookup(function.value, std::string(function.name), x);
    x = builder.conv(std::string(function.name) + "_next", x, {.out_channels = 8, .bias = true});
  }
  int factor =
      builder.conv("squeeze", builder.unary(Op::global_avg_pool, "mean", x), {.out_channels = 8, .bias = true});
  factor = builder.lookup(FunctionKind::hard_sigmoid, "gate", factor);
  x = builder.join(Op::mul, "excite", {x, factor});
  x = builder.join(Op::mul, "square", {x, x});
  factor = builder.linear("row", builder.unary(Op::global_avg_pool, "mean_2", x), 8);
  factor = builder.lookup(FunctionKind::sigmoid, "row_gate", factor);
  x = builder.join(Op::mul, "excite_2", {x, factor});
  builder.linear("fc", builder.unary(Op::global_avg_pool, "pool", x), 4);
  QuantSpec spec;
  spec.activation = scheme;
  return random_int8_graph(builder.finish(), spec, 4);
}

/// Channels split, pixels repeated, padding of one side.
Int8Graph with_picks(ActivationScheme scheme) {
  GraphBuilder builder("picks", {3, 9, 9}, false);
  const int x = builder.conv("conv", 0, {.out_channels = 5, .kernel = 3, .stride = 2, .bias = true});
  const int high = builder.resize("up", builder.slice("high", x, 3, 2), 2);
  const int pooled = builder.max_pool(
      "pool", high, {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .pad = {.bottom = 1, .right = 1}});
  builder.linear("fc", builder.unary(Op::global_avg_pool, "gap", pooled), 4);
  QuantSpec spec;
  spec.activation = scheme;
  Graph graph = builder.finish();
  graph.nodes[1].window.pad = {.top = 1, .right = 1};
  infer_shapes(graph);
  return random_int8_graph(graph, spec, 4);
}

/// The normalized images in C, H, W order.
Values real_images(const Int8Graph& graph, const std::vector<uint8_t>& pixels) {
  const Shape& s = graph.input_shape();
  Values values{{kImages, s.c, s.h, s.w}, {}};
  for (int n = 0; n < kImages; ++n)
    for (int c = 0; c < s.c; ++c)
      for (int pixel = 0; pixel < s.h * s.w; ++pixel)
        values.numbers.push_back(normalize_pixel(pixels[static_cast<size_t>((n * s.h * s.w + pixel) * s.c + c)],
                                                 graph.preprocessing.mean[static_cast<size_t>(c)],
                                                 graph.preprocessing.std[static_cast<size_t>(c)]));
  return values;
}

/// A node's numbers in C, H, W order: codes, or reals.
std::vector<double> in_planes(const Int8Node& node, const void* data) {
  std::vector<double> numbers(static_cast<size_t>(kImages * node.shape.elements()));
  const int pixel_count = node.shape.h * node.shape.w;
  for (int n = 0; n < kImages; ++n)
    for (int pixel = 0; pixel < pixel_count; ++pixel)
      for (int c = 0; c < node.shape.c; ++c) {
        const auto from = static_cast<size_t>((n * pixel_count + pixel) * node.shape.c + c);
        const uint8_t byte = static_cast<const uint8_t*>(data)[node.float_output ? 0 : from];
        numbers[static_cast<size_t>((n * node.shape.c + c) * pixel_count + pixel)] =
            node.float_output      ? static_cast<const float*>(data)[from]
            : node.out.is_signed() ? static_cast<int8_t>(byte)
                                   : byte;
      }
  return numbers;
}

/// The engine's codes of each edge by the name of its QuantizeLinear, and what each output is in reals, by its name.
struct EngineValues {
  std::map<std::string, std::vector<double>> edges, outputs;
};

EngineValues engine_values(const Int8Graph& graph, const std::vector<uint8_t>& pixels) {
  EngineValues values;
  const auto tap = [&](int index, const void* data, size_t) {
    const Int8Node& node = graph.nodes[static_cast<size_t>(index)];
    std::vector<double> numbers = in_planes(node, data);
    if (!node.float_output && node.op != Int8Op::flatten)  // a flatten's order is its own
      values.edges[node.name + "/QuantizeLinear"] = numbers;
    if (std::find(graph.outputs.begin(), graph.outputs.end(), index) == graph.outputs.end()) return;
    for (double& number : numbers)
      if (!node.float_output) number = dequantize(static_cast<int32_t>(number), node.out);
    values.outputs[graph.outputs.size() == 1 ? "logits" : node.name] = std::move(numbers);
  };
  const OutputBuffers memory(graph, kImages);
  find_engine("reference").compile(graph, {.max_batch = kImages})->run(pixels.data(), kImages, memory.memory(), tap);
  return values;
}

/// Largest distance of a code of the model from the engine's, and the share of codes that differ: each edge by itself,
/// from the engine's codes before it.
struct Distance {
  double largest = 0, differing = 0, outputs = 0;
};

Distance distance(const Int8Graph& graph, const std::string& onnx) {
  const std::vector<uint8_t> pixels = random_images(graph, kImages, 5);
  const auto [edges, outputs] = engine_values(graph, pixels);
  const auto values = walk_onnx(onnx, real_images(graph, pixels), edges);
  Distance result;
  size_t codes = 0;
  for (const auto& [name, ours] : edges) {
    const std::vector<double>& theirs = values.at(name).numbers;
    EXPECT_EQ(ours.size(), theirs.size()) << name;
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      const double off = std::abs(ours[i] - theirs[i]);
      result.largest = std::max(result.largest, off);
      result.differing += off != 0;
    }
    codes += ours.size();
  }
  result.differing /= static_cast<double>(codes);
  for (const auto& [name, ours] : outputs) {
    const std::vector<double>& theirs = values.at(name).numbers;
    EXPECT_EQ(ours.size(), theirs.size()) << name;
    double size = 1e-9, off = 0;
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
      size = std::max(size, std::abs(ours[i]));
      off = std::max(off, std::abs(theirs[i] - ours[i]));
    }
    result.outputs = std::max(result.outputs, off / size);
  }
  return result;
}

/// Codes may differ by 1 where the model's value, computed in reals, lies at the border of two codes.
void expect_same(const Int8Graph& graph, int opset = 13) {
  const Distance found = distance(graph, write_qdq(graph, {.opset = opset}));
  EXPECT_LE(found.largest, 1) << graph.name;
  EXPECT_LT(found.differing, 1e-5) << graph.name;
  EXPECT_LT(found.outputs, 1e-5) << graph.name;
}

TEST(OnnxExport, EveryEdgeHasTheEnginesCodes) {
  for (const ActivationScheme scheme : {ActivationScheme::symmetric_s8, ActivationScheme::affine_u8}) {
    expect_same(random_int8("resnet8", scheme));
    expect_same(random_int8("squeezenet1_1", scheme), 21);
  }
  expect_same(random_int8("small_cnn", ActivationScheme::unsigned_u8));
  expect_same(random_int8("mobilenet_v3_large", ActivationScheme::affine_u8));
}

TEST(OnnxExport, FunctionsAndProducts) {
  for (const ActivationScheme scheme : {ActivationScheme::symmetric_s8, ActivationScheme::affine_u8}) {
    expect_same(with_functions(scheme), 13);
    expect_same(with_functions(scheme), 21);
  }
}

/// octet's exponentials are rounded to 2^-15, ONNX's are not: a share near the border of two codes may fall on its
/// other side, and no other value.
TEST(OnnxExport, AttentionIsWrittenAsProductsAndShares) {
  for (const ActivationScheme scheme : {ActivationScheme::symmetric_s8, ActivationScheme::affine_u8})
    for (const double scale : {1.0, 0.7}) {
      const Int8Graph graph = with_attention(scheme, scale);
      const Distance found = distance(graph, write_qdq(graph, {}));
      EXPECT_LE(found.largest, 1);
      EXPECT_LT(found.differing, 1e-3);
      EXPECT_LT(found.outputs, 1e-5);
    }
}

TEST(OnnxExport, ExponentialsOfAnotherScaleAreRefused) {
  Int8Graph graph = with_attention(ActivationScheme::affine_u8);
  for (Int8Node& node : graph.nodes)
    if (node.op == Int8Op::softmax) node.exponentials[5] += 2;
  EXPECT_NE(error_of([&] { write_qdq(graph, {}); }).find("node 'shares' (softmax): exponential 5 is"),
            std::string::npos);
}

TEST(OnnxExport, AProductTimesNothingIsRefused) {
  Int8Graph graph = with_attention(ActivationScheme::affine_u8);
  for (Int8Node& node : graph.nodes)
    if (node.op == Int8Op::matmul) node.multiplier[0] = 0;
  const std::string message = error_of([&] { write_qdq(graph, {}); });
  EXPECT_NE(message.find("(matmul): multiplier 0 is not positive"), std::string::npos) << message;
}

TEST(OnnxExport, ATableThatIsNotItsFunctionsIsRefused) {
  Int8Graph graph = with_functions(ActivationScheme::affine_u8);
  for (Int8Node& node : graph.nodes)
    if (node.name == "silu") node.function = "selu";
  EXPECT_NE(error_of([&] { write_qdq(graph, {}); }).find("node 'silu' (lookup): its table was made from 'selu'"),
            std::string::npos);
  for (Int8Node& node : graph.nodes)
    if (node.name == "silu") node.function = "tanh";
  EXPECT_NE(error_of([&] { write_qdq(graph, {}); }).find("its function tanh gives"), std::string::npos);
}

TEST(OnnxExport, PicksAndUnevenPaddingAreWrittenAsTheyAre) {
  for (const ActivationScheme scheme : {ActivationScheme::symmetric_s8, ActivationScheme::affine_u8})
    expect_same(with_picks(scheme));
}

/// "name [N, 2, 9, 9]" of each output, as the file says.
std::vector<std::string> written_outputs(const std::string& bytes) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  std::vector<std::string> outputs;
  for (const onnx::ValueInfoProto& output : model.graph().output()) {
    std::string& text = outputs.emplace_back(output.name() + " [N");
    for (int i = 1; i < output.type().tensor_type().shape().dim_size(); ++i)
      text += ", " + std::to_string(output.type().tensor_type().shape().dim(i).dim_value());
    text += "]";
  }
  return outputs;
}

TEST(OnnxExport, ClassesOfPixelsAreWritten) {
  for (const ActivationScheme scheme : {ActivationScheme::symmetric_s8, ActivationScheme::affine_u8}) {
    const Int8Graph graph = random_int8("unet2", scheme);
    EXPECT_EQ(written_outputs(write_qdq(graph, {})), std::vector<std::string>{"logits [N, 10, 20, 20]"});
    expect_same(graph);
  }
}

TEST(OnnxExport, EveryOutputIsWrittenByItsName) {
  const std::vector<std::string> expected = {
      "fc [N, 4]",         "features [N, 8, 9, 9]", "pixels [N, 2, 9, 9]", "mean [N, 8]", "gate [N, 8, 9, 9]",
      "up [N, 8, 18, 18]", "smooth [N, 8, 27, 18]", "slopes [N, 8, 9, 9]", "row [N, 6]"};
  for (const ActivationScheme scheme : {ActivationScheme::symmetric_s8, ActivationScheme::affine_u8}) {
    const Int8Graph graph = with_outputs(scheme);
    EXPECT_EQ(written_outputs(write_qdq(graph, {})), expected);
    expect_same(graph);
  }
  Int8Graph graph = with_outputs(ActivationScheme::affine_u8);
  graph.nodes[static_cast<size_t>(graph.outputs[0])].name = "images";
  EXPECT_NE(error_of([&] { write_qdq(graph, {}); }).find("an output is called 'images'"), std::string::npos);
}

TEST(OnnxExport, ANetworkOfAFileKeepsTheNamesOfItsEnds) {
  Int8Graph graph = random_int8("resnet8", ActivationScheme::affine_u8);
  graph.nodes.front().name = "pixels";
  graph.nodes[static_cast<size_t>(graph.outputs.front())].name = "scores";
  for (const bool own : {false, true}) {
    graph.own_names = own;
    const std::string bytes = write_qdq(graph, {});
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(bytes));
    EXPECT_EQ(model.graph().input(0).name(), own ? "pixels" : "images");
    EXPECT_EQ(model.graph().output(0).name(), own ? "scores" : "logits");
    const ImportedInt8 again = parse_qdq(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "again.onnx");
    EXPECT_EQ(again.graph.nodes.front().name, own ? "pixels" : "images");
    EXPECT_EQ(again.graph.nodes[static_cast<size_t>(again.graph.outputs.front())].name, "scores");
  }
}

TEST(OnnxExport, ALinearBehindAFlattenTakesItsColumnsInOnnxsOrder) { expect_same(with_flatten()); }

TEST(OnnxExport, ProfilesDifferInTheirBiasesAndInWhatTheyRefuse) {
  const Int8Graph affine = random_int8("resnet8", ActivationScheme::affine_u8);
  EXPECT_NE(error_of([&] {
              write_qdq(affine, {.profile = OnnxProfile::tensorrt});
            }).find("TensorRT takes symmetric int8 activations"),
            std::string::npos);
  const Int8Graph symmetric = random_int8("resnet8", ActivationScheme::symmetric_s8);
  for (const OnnxProfile profile : {OnnxProfile::onnxruntime, OnnxProfile::tensorrt, OnnxProfile::int32_bias}) {
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(write_qdq(symmetric, {.profile = profile, .opset = 13})));
    int int32_biases = 0, per_channel = 0;
    for (const onnx::TensorProto& tensor : model.graph().initializer()) {
      int32_biases += tensor.name().ends_with(".bias_codes");
      if (tensor.name().ends_with(".weight_codes")) {
        EXPECT_EQ(tensor.data_type(), onnx::TensorProto::INT8);
      }
      if (tensor.name().ends_with(".weight_scale")) per_channel += tensor.dims_size() == 1;
    }
    EXPECT_EQ(int32_biases > 0, profile == OnnxProfile::int32_bias);
    EXPECT_EQ(per_channel, 8);
    EXPECT_EQ(model.opset_import(0).version(), 13);
  }
}

TEST(OnnxExport, Int32BiasesAreRoundedToTheNearest) {
  const Int8Graph graph = random_int8("resnet8", ActivationScheme::affine_u8);
  const std::string bytes = write_qdq(graph, {.profile = OnnxProfile::int32_bias});
  const auto values = walk_onnx(bytes, real_images(graph, random_images(graph, kImages, 5)));
  int biases = 0;
  for (const Int8Node& node : graph.nodes) {
    if (node.bias.empty()) continue;
    const Values& scale = values.at(node.name + ".bias_scale");
    for (size_t k = 0; k < node.bias.size(); ++k, ++biases) {
      const double real = node.bias[k] * (node.float_output ? 1.0 : node.out.scale);
      EXPECT_NEAR(values.at(node.name + ".bias").numbers[k], real, 0.501 * scale.numbers[k]) << node.name;
    }
  }
  EXPECT_GT(biases, 100);
}

TEST(OnnxExport, SignsAndZerosOfMultipliers) {
  Int8Graph graph = random_int8("small_cnn", ActivationScheme::affine_u8);
  for (Int8Node& node : graph.nodes) {
    if (node.op != Int8Op::conv2d) continue;
    node.multiplier[0] = -node.multiplier[0];
    node.multiplier[1] = 0;
  }
  expect_same(graph);
}

TEST(OnnxExport, MultipliersThatAreNoScalesAreRefused) {
  Int8Graph graph = random_int8("resnet8", ActivationScheme::affine_u8);
  for (Int8Node& node : graph.nodes)
    if (node.inputs.size() == 2) node.residual_multiplier *= 1.5f;
  EXPECT_NE(error_of([&] { write_qdq(graph, {}); }).find("is not the ratio of its edges' scales"), std::string::npos);
}

}  // namespace
}  // namespace octet
