// Rounding learned layer by layer: every layer's output comes nearer to the float one's, and no code moves by more
// than 1.
#include "src/qat/reconstruct/adaround.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/common/error.h"
#include "tests/qat/networks.h"

namespace octet {
namespace {

at::Tensor pictures(const Shape& shape, int count) {
  const Preprocessing p = test::preprocessing_for(shape);
  const std::vector<uint8_t> images = test::random_images(shape, count, 5);
  return images_to_tensor(images.data(), count, shape, p.mean, p.std);
}

std::vector<std::vector<int8_t>> codes(const QuantizedModel& model) {
  std::vector<std::vector<int8_t>> all;
  for (const Int8Node& node : model.convert(test::preprocessing_for(model.prepared().graph.nodes[0].shape), {}).nodes)
    if (!node.weight.empty()) all.push_back(node.weight);
  return all;
}

/// Of each layer, as RoundedLayer says, between the network as it is and a float walk with `floats`.
std::vector<double> errors(QuantizedModel& model, const Weights& floats, const at::Tensor& x) {
  const Graph& graph = model.prepared().graph;
  std::vector<at::Tensor> wanted(graph.nodes.size());
  const auto output_of = [&](int n, const Unfinished& y) {
    const bool residual = y.residual.defined();
    const at::Tensor sum = add_up({.value = y.value.clone(), .bias = y.bias});
    return residual ? sum : activate(sum, graph.nodes[n].activation, false);
  };
  WalkHooks hooks;
  hooks.finish = [&](int n, const Unfinished& y) {
    wanted[n] = output_of(n, y);
    return activate(add_up(y), graph.nodes[n].activation, y.owned);
  };
  walk(graph, floats, x, {}, hooks);
  std::vector<double> result;
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!has_weight(graph.nodes[n].op)) return;
    const at::Tensor difference = output_of(n, y) - wanted[n];
    result.push_back(difference.square().mean().item<double>() * graph.nodes[n].out_channels);
  });
  return result;
}

struct Case {
  Graph graph;
  QuantSpec quant;
  WeightCalibrator weights;
};

std::vector<Case> cases() {
  QuantSpec tensor = uniform_bits(8, 3), full = uniform_bits(6, 3);
  tensor.weight_granularity = Granularity::per_tensor;
  full.weight_range = WeightRange::full;
  ModelSpec normalized = test::family("graph", 10);
  normalized.classes = 4;
  normalized.graph = {{"a", "conv2d", {}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}}},
                      {"bn_a", "batch_norm", {}, {}},
                      {"r", "relu", {}, {}},
                      {"b", "conv2d", {}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}, {"groups", 8}}},
                      {"bn_b", "batch_norm", {}, {}},
                      {"s", "add", {"bn_b", "r"}, {}},
                      {"q", "relu", {}, {}},
                      {"f", "flatten", {}, {}},
                      {"l", "linear", {}, {{"out_channels", 4}}}};
  return {{build_model(test::other_operators()), tensor, WeightCalibrator::minmax},
          {build_model(test::other_operators()), full, WeightCalibrator::mse},
          {build_model(normalized), uniform_bits(4, 4), WeightCalibrator::mse},
          {build_model(normalized), uniform_bits(8, 2), WeightCalibrator::minmax}};
}

TEST(AdaRound, EveryLayerComesNearerAndCodesMoveByAtMostOne) {
  for (const Case& c : cases()) {
    const Weights weights = test::random_weights(c.graph, 3);
    QuantizedModel model =
        test::calibrated(c.graph, weights, c.quant, CalibrationMethod::minmax, {.weights = c.weights});
    const at::Tensor x = pictures(c.graph.nodes[0].shape, 24);
    Weights floats = weights;
    for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
    const auto before = codes(model);
    std::vector<RoundedLayer> layers;
    adaround(model, x, {.steps = 400, .batch_size = 8}, [&](const RoundedLayer& layer) { layers.push_back(layer); });
    const auto after = codes(model);

    const c10::NoGradGuard no_grad;
    const std::vector<double> measured = errors(model, floats, x);
    ASSERT_EQ(layers.size(), after.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_LT(layers[i].rounded, layers[i].nearest) << layers[i].name;
      EXPECT_NEAR(layers[i].rounded, measured[i], 1e-4 * measured[i]) << layers[i].name;
      int64_t moved = 0;
      for (size_t w = 0; w < after[i].size(); ++w) {
        EXPECT_LE(std::abs(after[i][w] - before[i][w]), 1) << layers[i].name << " " << w;
        moved += after[i][w] != before[i][w];
      }
      EXPECT_EQ(moved, layers[i].moved) << layers[i].name;
      EXPECT_GT(moved, 0) << layers[i].name;
    }
  }
}

TEST(AdaRound, TheSameSeedGivesTheSameBits) {
  const Graph graph = build_model(test::other_operators());
  std::vector<std::vector<std::vector<int8_t>>> results;
  for (const uint64_t seed : {1, 1, 2}) {
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
    adaround(model, pictures(graph.nodes[0].shape, 16), {.steps = 50, .batch_size = 8, .seed = seed},
             [](const RoundedLayer&) {});
    results.push_back(codes(model));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[0], results[2]);
}

}  // namespace
}  // namespace octet
