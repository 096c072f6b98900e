// SPDX-License-Identifier: Apache-2.0
// Networks of the zoo compared with torchvision's, by tools/lab/golden/golden_zoo.py: names and shapes of parameters,
// and logits.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/net/zoo.h"
#include "src/train/model/model.h"
#include "tests/source_dir.h"

namespace octet {
namespace {

constexpr int kSide = 64, kImages = 2;
constexpr uint64_t kFirstPixel = uint64_t{1} << 40;

/// The formula of golden_zoo.py.
double uniform(uint64_t number) {
  uint64_t z = (number + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 40) / 0x1p24 - 0.5;
}

float value(const std::string& name, const std::vector<long>& shape, double u) {
  double fan_in = 1;
  for (size_t i = 1; i < shape.size(); ++i) fan_in *= static_cast<double>(shape[i]);
  if (shape.size() > 1) return static_cast<float>(u * std::sqrt(18 / fan_in));
  return static_cast<float>(name.ends_with("running_var") || name.ends_with(".weight") ? u + 1.25 : u);
}

/// std::map orders by name.
Weights golden_weights(const Graph& graph) {
  std::map<std::string, std::vector<long>> shapes;
  for (const ParameterSpec& spec : parameters(graph)) shapes[spec.name] = spec.shape;
  Weights weights;
  uint64_t number = 0;
  for (const auto& [name, shape] : shapes) {
    at::Tensor tensor = at::empty(std::vector<int64_t>(shape.begin(), shape.end()));
    float* data = tensor.mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = value(name, shape, uniform(number++));
    weights.emplace(name, tensor);
  }
  return weights;
}

class GoldenZoo : public testing::TestWithParam<const char*> {};

TEST_P(GoldenZoo, HasTorchvisionsParametersAndLogits) {
  const auto golden = nlohmann::json::parse(read_file(source_dir() + "/tests/train/golden_zoo.json")).at(GetParam());
  const Graph graph =
      build_model({.name = GetParam(), .input = {3, kSide, kSide}, .classes = 10, .stem = "imagenet", .dropout = 0.2});
  std::map<std::string, std::vector<long>> shapes;
  for (const ParameterSpec& spec : parameters(graph)) shapes[spec.name] = spec.shape;
  EXPECT_EQ(shapes, golden.at("shapes").get<decltype(shapes)>());

  at::Tensor x = at::empty({kImages, 3, kSide, kSide});
  float* pixels = x.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    pixels[i] = static_cast<float>(uniform(kFirstPixel + static_cast<uint64_t>(i))) * 4;
  }
  const at::Tensor logits = walk(graph, golden_weights(graph), x, {});
  const auto expected = golden.at("logits").get<std::vector<float>>();
  ASSERT_EQ(logits.numel(), static_cast<int64_t>(expected.size()));
  float largest = 0;
  for (const float logit : expected) largest = std::max(largest, std::abs(logit));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(logits.const_data_ptr<float>()[i], expected[i], 1e-4f * largest) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, GoldenZoo,
                         testing::Values("efficientnet_b0", "mobilenet_v3_large", "shufflenet_v2_x1_0"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace octet
