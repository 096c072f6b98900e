// SPDX-License-Identifier: Apache-2.0
// Int32 biases, which int8 runtimes make of a file's: none saturates, and no other channel changes.
#include "src/net/onnx/writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "onnx.pb.h"
#include "src/net/onnx/onnx.h"
#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/engine/random_network.h"
#include "tests/net/onnx/qdq_walk.h"

namespace octet {
namespace {

using namespace test;

constexpr QParams kInput{.scale = 0.0173f, .zero_point = 120, .quant_min = 0, .quant_max = 255};

TEST(QdqBiases, CodesAreRoundedHalfToEvenAndSaturate) {
  EXPECT_EQ(int32_bias(0.75, 0.5), 2);
  EXPECT_EQ(int32_bias(1.25, 0.5), 2);
  EXPECT_EQ(int32_bias(-0.36, 0.1), -4);
  EXPECT_EQ(int32_bias(1, 1e-12), 2147483647);
  EXPECT_EQ(int32_bias(-1, 1e-12), -2147483648);
}

/// In the middle of the range a scale stays; where bias and sum would pass the end of int32 it is raised, by no more
/// than four times what it must be.
TEST(QdqBiases, AScaleIsRaisedWhereTheSumWouldOverflow) {
  const double taps = 27, sum = 27 * 127 * 135.0;
  for (const double room : {0.4, 0.9, 1.1, 15.0, 1e6}) {  // the bias in codes, of what the sum leaves
    std::vector<int8_t> codes(static_cast<size_t>(taps), 127);
    const float bias = -0.731f, before = static_cast<float>(0.731 / (room * (2147483647.0 - sum) * kInput.scale));
    float scale = before;
    Int32Biases biases;
    biases.fit(codes, scale, bias, kInput, 0.02);
    double after = 0;
    for (const int8_t code : codes) after += std::abs(code) * 135.0;
    EXPECT_LE(0.731 / (static_cast<double>(scale) * kInput.scale) + after, 2147483647.0) << room;
    EXPECT_EQ(scale == before, room < 1) << room;
    EXPECT_LE(scale, before * std::max(1.0, 4 * room)) << room;
    EXPECT_EQ(biases.notes("conv").size(), room < 1 ? 0u : 1u) << room;
    for (const int8_t code : codes) EXPECT_EQ(code, std::nearbyint(127 * static_cast<double>(before) / scale));
  }
}

/// Its bias has a thousandth of an input code to be said in, and the output's codes are as fine.
TEST(QdqBiases, ABiasThatInt32CannotSayIsTold) {
  std::vector<int8_t> codes = {1, 0};
  float scale = 0.5f;
  Int32Biases biases;
  biases.fit(codes, scale, 0.3f * 0.5f * kInput.scale, kInput, 0.5f * kInput.scale);
  ASSERT_EQ(biases.notes("add").size(), 1u);
  EXPECT_EQ(biases.notes("add")[0],
            "add: the bias of channel 0 is 0.3 of an output's code off where a runtime makes an int32 bias of it");
}

std::map<std::string, Values> initializers(const std::string& bytes) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes));
  std::map<std::string, Values> found;
  for (const onnx::TensorProto& tensor : model.graph().initializer()) {
    Values& values = found[tensor.name()];
    const std::string& raw = tensor.raw_data();
    if (tensor.data_type() == onnx::TensorProto::INT8)
      for (const char byte : raw) values.numbers.push_back(static_cast<int8_t>(byte));
    if (tensor.data_type() == onnx::TensorProto::FLOAT)
      for (size_t i = 0; i + sizeof(float) <= raw.size(); i += sizeof(float)) {
        float number = 0;
        std::copy_n(raw.data() + i, sizeof(float), reinterpret_cast<char*>(&number));
        values.numbers.push_back(number);
      }
  }
  return found;
}

TEST(QdqBiases, OnlyTheNearlyDeadChannelOfAFileChanges) {
  ModelSpec model;
  model.name = "small_cnn";
  model.input = {3, 20, 20};
  QuantSpec spec;
  spec.activation = ActivationScheme::symmetric_s8;
  Int8Graph graph = random_int8_graph(build_model(model), spec, 3);
  for (const OnnxProfile profile :
       {OnnxProfile::onnxruntime, OnnxProfile::openvino, OnnxProfile::tensorrt, OnnxProfile::int32_bias})
    for (const float dead : {1e-9f, 1e-30f, 0.0f}) {
      Int8Graph other = graph;
      const auto conv = std::find_if(other.nodes.begin(), other.nodes.end(),
                                     [](const Int8Node& node) { return node.op == Int8Op::conv2d; });
      const size_t channels = conv->multiplier.size(), row = conv->weight.size() / channels;
      conv->multiplier[2] *= dead;
      conv->bias[2] = 40.3f;
      std::vector<std::string> notes, none;
      const auto before = initializers(write_qdq(graph, {.profile = profile}, nullptr, &none));
      const auto after = initializers(write_qdq(other, {.profile = profile}, nullptr, &notes));
      EXPECT_TRUE(none.empty());
      ASSERT_EQ(notes.size(), dead > 0 ? 1u : 0u);  // without weights no answer changes
      if (!notes.empty())
        EXPECT_TRUE(notes[0].starts_with(conv->name + ": 1 of " + std::to_string(channels) +
                                         " channels (the first: 2) have weights so small beside their bias"))
            << notes[0];
      const std::vector<double>& codes = after.at(conv->name + ".weight_codes").numbers;
      const std::vector<double>& scale = after.at(conv->name + ".weight_scale").numbers;
      double sum = 0;
      for (size_t i = 2 * row; i < 3 * row; ++i) sum += std::abs(codes[i]) * 128;
      const double x_scale = graph.nodes[static_cast<size_t>(conv->inputs[0])].out.scale;
      const double bias = 40.3 * conv->out.scale / (x_scale * scale[2]);
      EXPECT_LE(bias + sum, 2147483647.0) << dead;
      EXPECT_GT(bias, 1 << 24) << dead;  // as fine as a float
      for (const auto& [name, values] : before)
        for (size_t i = 0; i < values.numbers.size(); ++i) {
          const bool own = name.starts_with(conv->name + ".") && i * channels / values.numbers.size() == 2;
          if (!own) ASSERT_EQ(after.at(name).numbers[i], values.numbers[i]) << name << " " << i;
        }
    }
}

}  // namespace
}  // namespace octet
