// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "src/net/zoo.h"
#include "src/quant/convert.h"
#include "tests/quant/walks.h"

namespace octet {
namespace {

constexpr std::array kSchemes = {ActivationScheme::symmetric_s8, ActivationScheme::unsigned_u8,
                                 ActivationScheme::affine_u8};

ModelSpec model(std::string_view name, Shape input = {3, 32, 32}) {
  ModelSpec spec;
  spec.name = name;
  spec.input = input;
  return spec;
}

TEST(RandomInt8Graph, EveryModelAndSchemeIsValid) {
  for (const std::string_view name : model_names()) {
    const Graph graph = build_model(model(name));
    for (const ActivationScheme scheme : kSchemes) {
      const Int8Graph random = random_int8_graph(graph, {.activation = scheme}, 1);
      EXPECT_EQ(multiply_adds(random), multiply_adds(graph)) << name;
      EXPECT_EQ(random.nodes[random.outputs.front()].shape.c, 10) << name;
      EXPECT_TRUE(random.nodes.back().float_output);
    }
  }
}

TEST(RandomInt8Graph, SeedDecides) {
  const Graph graph = build_model(model("resnet8"));
  const Int8Graph a = random_int8_graph(graph, {}, 5), b = random_int8_graph(graph, {}, 5),
                  c = random_int8_graph(graph, {}, 6);
  EXPECT_EQ(a.nodes[3].weight, b.nodes[3].weight);
  EXPECT_EQ(a.nodes[3].multiplier, b.nodes[3].multiplier);
  EXPECT_EQ(a.nodes[3].out, b.nodes[3].out);
  EXPECT_NE(a.nodes[3].weight, c.nodes[3].weight);
}

class RandomActivations : public ::testing::TestWithParam<std::tuple<const char*, ActivationScheme>> {};

TEST_P(RandomActivations, NeitherVanishNorSaturate) {
  const auto& [name, scheme] = GetParam();
  const Int8Graph graph = random_int8_graph(build_model(model(name)), {.activation = scheme}, 11);
  const auto values = testing::walk_int8(graph, testing::random_pixels(graph.input_shape(), 2));
  for (size_t n = 0; n + 1 < graph.nodes.size(); ++n) {
    const QParams& q = graph.nodes[n].out;
    double squares = 0, saturated = 0;
    for (const double value : values[n]) {
      const double code = value / q.scale;
      squares += code * code;
      saturated += code >= q.quant_max - q.zero_point || (q.zero_point != 0 && code <= q.quant_min - q.zero_point);
    }
    const double size = static_cast<double>(values[n].size());
    EXPECT_GT(std::sqrt(squares / size), 0.06 * q.quant_max) << graph.nodes[n].name;
    EXPECT_LT(saturated / size, 0.25) << graph.nodes[n].name;
  }
  const auto [lo, hi] = std::minmax_element(values.back().begin(), values.back().end());
  EXPECT_LT(*lo, *hi);
}

/// A gate multiplies what the estimate of its input is wrong by: less is asked, and not of edges of a few values.
TEST(RandomInt8Graph, GatedActivationsStayAlive) {
  for (const char* name : {"efficientnet_b0", "mobilenet_v3_large"}) {
    const Int8Graph graph = random_int8_graph(build_model(model(name)), {}, 11);
    const auto values = testing::walk_int8(graph, testing::random_pixels(graph.input_shape(), 2));
    for (size_t n = 0; n + 1 < graph.nodes.size(); ++n) {
      const QParams& q = graph.nodes[n].out;
      if (values[n].size() < 64) continue;
      double squares = 0, ends = 0;
      for (const double value : values[n]) {
        const double code = value / q.scale;
        squares += code * code;
        ends += code >= q.quant_max - q.zero_point;
      }
      const double size = static_cast<double>(values[n].size());
      EXPECT_GT(std::sqrt(squares / size), 0.015 * q.quant_max) << graph.nodes[n].name;
      EXPECT_LT(ends / size, 0.3) << graph.nodes[n].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomActivations,
                         ::testing::Combine(::testing::Values("resnet8", "resnet56", "mobilenet_v2", "small_cnn"),
                                            ::testing::ValuesIn(kSchemes)));

}  // namespace
}  // namespace octet
