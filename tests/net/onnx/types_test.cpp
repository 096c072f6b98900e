// SPDX-License-Identifier: Apache-2.0
// Files of float16 and bfloat16, inputs of other types, and images whose size the file leaves open.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <tuple>

#include "onnx.pb.h"
#include "src/base/files.h"
#include "tests/error_of.h"
#include "tests/net/onnx/imported.h"

namespace octet {
namespace {

using namespace test;
using onnx::TensorProto;

onnx::GraphProto& graph_of(ModelBuilder& builder) { return *builder.model().mutable_graph(); }

void set_input_type(ModelBuilder& model, TensorProto::DataType type) {
  graph_of(model).mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(type);
}

/// A Conv's weights [2, 3, 1, 1] by their bits, as raw bytes or number by number.
void add_half_weight(ModelBuilder& model, TensorProto::DataType type, const std::array<uint16_t, 6>& bits, bool raw) {
  TensorProto& tensor = *graph_of(model).add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(type);
  for (const int64_t dim : {2, 3, 1, 1}) tensor.add_dims(dim);
  if (raw) tensor.set_raw_data(bits.data(), sizeof(bits));
  for (size_t i = 0; !raw && i < bits.size(); ++i) tensor.add_int32_data(bits[i]);
}

std::vector<float> weight_of(const ImportedNetwork& network, const std::string& name) {
  return to_float(network.weights.tensors.at(name));
}

/// model.half() by PyTorch: the input, all weights and Casts around what is computed in float32.
TEST(OnnxTypes, HalfPrecisionWeightsAreTakenAsTheyAre) {
  // 1, -2, 65504 (the largest), 2^-24 (the smallest), 0.1 rounded, -0: IEEE 754 binary16, and the same of bfloat16.
  const std::array<uint16_t, 6> half = {0x3c00, 0xc000, 0x7bff, 0x0001, 0x2e66, 0x8000};
  const std::vector<float> of_half = {1, -2, 65504, 0x1p-24f, 0.0999755859375f, -0.0f};
  const std::array<uint16_t, 6> bfloat = {0x3f80, 0xc000, 0x7f7f, 0x0001, 0x3dcd, 0x8000};
  const std::vector<float> of_bfloat = {1, -2, 0x1.fep127f, 0x1p-133f, 0.10009765625f, -0.0f};
  for (const bool raw : {false, true}) {
    for (const auto& [type, bits, values] :
         {std::tuple{TensorProto::FLOAT16, half, of_half}, std::tuple{TensorProto::BFLOAT16, bfloat, of_bfloat}}) {
      ModelBuilder model;
      set_input_type(model, type);
      add_half_weight(model, type, bits, raw);
      model.node("Cast", {"image"}, "half").integer("to", type);
      model.node("Conv", {"half", "w"}, "c");
      model.node("Cast", {"c"}, "y").integer("to", TensorProto::FLOAT);
      const ImportedNetwork network = imported(model.bytes("y"));
      EXPECT_EQ(weight_of(network, "c.weight"), values) << raw;
      ASSERT_EQ(network.notes.size(), 1u);
      EXPECT_NE(network.notes[0].find("become float32"), std::string::npos);
    }
  }
  ModelBuilder infinite;
  add_half_weight(infinite, TensorProto::FLOAT16, {0x7c00, 0, 0, 0, 0, 0}, true);
  infinite.node("Conv", {"image", "w"}, "y");
  EXPECT_EQ(error_of([&] { imported(infinite.bytes("y")); }),
            "test.onnx: weights 'w': holds inf at [0, 0, 0, 0]: train or export the network again");
}

/// model.double() by PyTorch: the input, all weights and the outputs. Values are rounded to the nearest float32, of two
/// equally near the even one.
TEST(OnnxTypes, DoublePrecisionWeightsAreRounded) {
  const std::array<double, 6> values = {0.1, -2, 1 + 0x1p-24, 1 + 3 * 0x1p-24, 0x1p-60 / 3, 0x1.fffffefffffffp127};
  const std::vector<float> rounded = {0x1.99999ap-4f, -2, 1, 1 + 0x1p-22f, 0x1.555556p-62f, 0x1.fffffep127f};
  const auto network_of = [](const std::array<double, 6>& weights, bool raw) {
    ModelBuilder model;
    set_input_type(model, TensorProto::DOUBLE);
    TensorProto& tensor = *graph_of(model).add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(TensorProto::DOUBLE);
    for (const int64_t dim : {2, 3, 1, 1}) tensor.add_dims(dim);
    if (raw) tensor.set_raw_data(weights.data(), sizeof(weights));
    for (size_t i = 0; !raw && i < weights.size(); ++i) tensor.add_double_data(weights[i]);
    model.node("Cast", {"image"}, "double").integer("to", TensorProto::DOUBLE);
    model.node("Conv", {"double", "w"}, "c");
    model.node("Cast", {"c"}, "y").integer("to", TensorProto::FLOAT);
    return model.bytes("y");
  };
  const std::string general = "weights of float64 become the nearest float32; the network computes in float32";
  for (const bool raw : {false, true}) {
    const ImportedNetwork network = imported(network_of(values, raw));
    EXPECT_EQ(weight_of(network, "c.weight"), rounded) << raw;
    EXPECT_EQ(network.notes, (std::vector<std::string>{general}));
    // 2^-149 is float32's smallest number and is kept; 1e-40 loses digits, 1e-60 becomes 0.
    const ImportedNetwork small = imported(network_of({1, 0x1p-149, 1e-40, -1e-60, 0, 0x1p-126}, raw));
    EXPECT_EQ(weight_of(small, "c.weight"), (std::vector<float>{1, 0x1p-149f, 1e-40f, -0.0f, 0, 0x1p-126f}));
    EXPECT_EQ(small.notes,
              (std::vector<std::string>{general,
                                        "weights 'w': 2 of 6 float64 values nearer to 0 than 1.2e-38, where float32 "
                                        "loses digits: 0 or rounded further here"}));
    EXPECT_EQ(error_of([&] {
                imported(network_of({1, 1, 1, 1, 1e300, 1}, raw));
              }),
              "test.onnx: weights 'w': holds inf at [1, 1, 0, 0]; as float64 in the file, beyond float32's 3.4e38: "
              "train or export the network again");
    EXPECT_EQ(error_of([&] {
                imported(network_of({1, INFINITY, 1, 1, 1, 1}, raw));
              }),
              "test.onnx: weights 'w': holds inf at [0, 1, 0, 0]: train or export the network again");
  }
}

/// A bound beyond float32 is none, and a note says so. Sizes are not computed with float64, whose product rounded to
/// float32 may be another integer.
TEST(OnnxTypes, DoublePrecisionBoundsAndSizes) {
  ModelBuilder model;
  for (const auto& [name, value] : {std::pair{"low", 0.0}, std::pair{"high", 1e300}}) {
    TensorProto& tensor = *graph_of(model).add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(TensorProto::DOUBLE);
    tensor.add_double_data(value);
  }
  model.integers("three", {3});
  model.node("Clip", {"image", "low", "high"}, "clipped");
  model.node("Cast", {"three"}, "double").integer("to", TensorProto::DOUBLE);
  model.node("Cast", {"high"}, "integer").integer("to", TensorProto::INT64);
  const ImportedNetwork network = imported(model.bytes("clipped"));
  EXPECT_EQ(network.graph.nodes.back().op, Op::relu);
  ASSERT_EQ(network.notes.size(), 2u);
  EXPECT_EQ(network.notes[1], "weights 'high': 1 of 1 float64 value beyond 3.4e38, the end of float32: infinite here");
  for (const char* name : {"double", "integer"})
    EXPECT_NE(error_of([&] { imported(model.bytes(name)); }).find("octet computes shapes with float32"),
              std::string::npos);
}

TEST(OnnxTypes, PixelsOfBytes) {
  ModelBuilder model;
  set_input_type(model, TensorProto::UINT8);
  model.scalar("most", 255);
  model.node("Cast", {"image"}, "reals").integer("to", TensorProto::FLOAT);
  model.node("Div", {"reals", "most"}, "unit");
  model.node("Relu", {"unit"}, "y");
  const ImportedNetwork network = imported(model.bytes("y"));
  ASSERT_EQ(network.graph.nodes.size(), 3u);
  EXPECT_EQ(weight_of(network, network.graph.nodes[1].name + ".weight"), (std::vector<float>(3, 1.0f / 255)));
  ASSERT_FALSE(network.notes.empty());
  EXPECT_EQ(network.notes[0],
            "input 'image': takes pixels of 0 to 255 as uint8, octet's network as float32: data.mean 0 and data.std "
            "0.003921569 give it them");

  set_input_type(model, TensorProto::INT32);
  EXPECT_NE(error_of([&] { imported(model.bytes("y")); }).find("expected images [N, C, H, W] of float32, float16"),
            std::string::npos);
  ModelBuilder back;
  back.node("Cast", {"image"}, "y").integer("to", TensorProto::INT64);
  EXPECT_NE(error_of([&] { imported(back.bytes("y")); }).find("to another type; expected float32"), std::string::npos);
}

/// Only bounds may be infinite, also when a Constant gives them.
TEST(OnnxTypes, InfinityIsABoundAndNoWeight) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {infinity, std::nanf("")}) {
    ModelBuilder model;
    model.node("Constant", {}, "number").real("value_float", value);
    model.scalar("zero", 0);
    model.node("Clip", {"image", "zero", "number"}, "clipped");
    model.node("Mul", {"image", "number"}, "scaled");
    if (value == infinity) EXPECT_EQ(imported(model.bytes("clipped")).graph.nodes.back().op, Op::relu);
    if (value != infinity)
      EXPECT_NE(error_of([&] { imported(model.bytes("clipped")); }).find("'number' is not one float32 number"),
                std::string::npos);
    EXPECT_NE(error_of([&] { imported(model.bytes("scaled")); }).find("weights 'number': holds "), std::string::npos);
  }
}

ImportedNetwork imported_for(int image_size, const std::string& bytes) {
  return parse_onnx(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), "test.onnx", {}, image_size);
}

TEST(OnnxTypes, AnOpenSizeIsTheRecipes) {
  ModelBuilder model;  // as torch.onnx.export(dynamic_axes=...) writes it
  model.leave_size_open();
  model.node("Relu", {"image"}, "y");
  EXPECT_EQ(
      error_of([&] { imported(model.bytes("y")); }),
      "test.onnx: input 'image': its height is open ('height'), and octet's networks are for images of one size: a "
      "recipe's data.image_size gives it, and octet inspect test.onnx --image-size SIZE shows the network");
  EXPECT_EQ(imported_for(12, model.bytes("y")).graph.nodes[1].shape, (Shape{3, 12, 12}));
  ModelBuilder fixed;
  fixed.node("Relu", {"image"}, "y");
  EXPECT_EQ(imported_for(8, fixed.bytes("y")).graph.nodes[1].shape, (Shape{3, 8, 8}));
}

/// A file that torch.onnx.export wrote for one size, whose layers take any.
TEST(OnnxTypes, TheRecipesSizeStandsInPlaceOfTheFiles) {
  ModelBuilder fixed;
  fixed.node("Relu", {"image"}, "y");
  const ImportedNetwork network = imported_for(12, fixed.bytes("y"));
  EXPECT_EQ(network.graph.nodes[1].shape, (Shape{3, 12, 12}));
  EXPECT_EQ(network.notes,
            std::vector<std::string>{"input 'image': images of 8x8 in the file, of 12x12 in octet's network"});
  ModelBuilder linear;
  linear.node("Flatten", {"image"}, "flat");
  linear.weight("w", {5, 192});
  linear.node("Gemm", {"flat", "w"}, "y").integer("transB", 1);
  const std::string refusal = error_of([&] { imported_for(12, linear.bytes("y")); });
  EXPECT_TRUE(refusal.ends_with(
      "; the file is for images of 8x8, which octet imports, and was tried with 12x12: leave --image-size out, or "
      "give a recipe's data.image_size the file's size"))
      << refusal;
}

/// F.interpolate(x, scale_factor=2) and y.view(y.size(0), -1) of an open size, with sizes computed in floats.
TEST(OnnxTypes, ArithmeticOfAnOpenSize) {
  ModelBuilder model;
  model.leave_size_open();
  for (const char* name : {"two", "three"}) model.integers(name, {name == std::string("two") ? 2 : 3});
  model.integers("axis", {0});
  model.integers("none", {0});
  model.integers("all", {4});
  model.integers("rest", {-1});
  model.integer("first", 0);
  model.scalar("factor", 2);
  model.node("Shape", {"image"}, "shape");
  model.node("Slice", {"shape", "two", "all", "axis"}, "size");
  model.node("Cast", {"size"}, "reals").integer("to", TensorProto::FLOAT);
  model.node("Mul", {"reals", "factor"}, "larger");
  model.node("Cast", {"larger"}, "sizes").integer("to", TensorProto::INT64);
  model.node("Slice", {"shape", "none", "two", "axis"}, "images");
  model.node("Concat", {"images", "sizes"}, "target").integer("axis", 0);
  model.node("Resize", {"image", "", "", "target"}, "up").text("mode", "nearest");
  model.node("Shape", {"up"}, "up_shape");
  model.node("Gather", {"up_shape", "first"}, "batch").integer("axis", 0);
  model.node("Unsqueeze", {"batch", "axis"}, "batch_row");
  model.node("Concat", {"batch_row", "rest"}, "row").integer("axis", 0);
  model.node("Reshape", {"up", "row"}, "y");
  EXPECT_EQ(imported_for(5, model.bytes("y")).graph.nodes.back().shape, (Shape{3 * 10 * 10, 1, 1}));
}

}  // namespace
}  // namespace octet
