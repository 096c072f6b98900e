// SPDX-License-Identifier: Apache-2.0
// The quantized network as it runs on an engine, and what it loses by layer.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/quant/plan.h"
#include "src/train/proof/deployed_network.h"
#include "src/train/proof/torch_program.h"
#include "src/train/repair/output_error.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

/// Weights that explode give infinity, whose share of the noise is no number.
TEST(OutputErrors, AnOutputThatIsNotFiniteLosesAll) {
  Graph graph;
  graph.nodes.push_back({.name = "y"});
  graph.outputs = {0};
  const at::Tensor wanted = at::arange(6, at::kFloat).view({2, 3});
  at::Tensor got = wanted.clone();
  got[1][0] = std::numeric_limits<float>::infinity();
  const FloatOutputs outputs(std::vector<std::vector<at::Tensor>>(1, {wanted}));
  const std::vector<OutputError> errors =
      output_errors(graph, outputs, [&](size_t) { return std::vector<at::Tensor>{got}; });
  EXPECT_DOUBLE_EQ(errors.at(0).lost, 0.5);  // the first image loses nothing
}

TEST(SilentImages, AreThoseWithoutAValueFurtherThanACodeFromTheMedian) {
  const auto image = [](float value) {  // a quarter of two channels, whose medians are 0 and 10
    const at::Tensor y = at::zeros({1, 2, 2, 2});
    y.select(1, 1).fill_(10);
    y[0][0][1][0] = value;
    return y;
  };
  const std::vector<at::Tensor> first = {at::cat({image(0), image(-255)})},
                                second = {at::cat({image(1), image(1.01f), image(-0.5f)})};
  const FloatOutputs outputs(std::vector<std::vector<at::Tensor>>{first, second});
  EXPECT_EQ(silent_images(outputs, 0), 3u);
}

at::Tensor scaled_images(uint64_t seed, int count) {
  at::manual_seed(seed);
  return (at::randn({count, 3, 16, 16}) * at::tensor({1.0f, 0.3f, 2.0f}).view({1, 3, 1, 1}))
      .contiguous(at::MemoryFormat::ChannelsLast);
}

QuantizedModel calibrated(const std::string& family) {
  const Graph graph = build_model(test::family(family, 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  const c10::NoGradGuard no_grad;
  model.forward(scaled_images(3, 16), {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

TEST(DeployedNetwork, ShowsTheValuesOfTheQatGraphsCodes) {
  const c10::NoGradGuard no_grad;
  for (const char* family : {"resnet8", "mobilenet_v2"}) {
    QuantizedModel model = calibrated(family);
    const at::Tensor x = scaled_images(4, 3);
    const QParams input = model.edges().front();
    const Preprocessing preprocessing = pixels_are_codes(input, 3);
    const Int8Graph graph = model.convert(preprocessing, {});
    std::map<int, at::Tensor> wanted;
    const std::unique_ptr<Program> exact = qat_graph_program(model, preprocessing);
    const OutputBuffers buffers(graph, 3);
    exact->run(pixels_of(x, input).data(), 3, buffers.memory(), [&](int n, const void* data, size_t bytes) {
      const Int8Node& node = graph.nodes[n];
      const auto* first = static_cast<const uint8_t*>(data);
      std::vector<float> values;
      for (size_t i = 0; i < bytes / (node.float_output ? 4 : 1); ++i) {
        if (node.float_output)
          values.push_back(static_cast<const float*>(data)[i]);
        else
          values.push_back(dequantize(node.out.is_signed() ? static_cast<int8_t>(first[i]) : first[i], node.out));
      }
      wanted[n] = at::tensor(values);
    });
    std::map<int, at::Tensor> got;
    DeployedNetwork network(model, 3);
    network.run(x, [&](int n, const at::Tensor& y) {
      EXPECT_EQ(y.size(1), model.prepared().graph.nodes[n].shape.c);
      if (graph.nodes[n].op == Int8Op::flatten) return;  // has another order than what engines store
      got[n] = y.permute({0, 2, 3, 1}).contiguous().flatten();
    });
    ASSERT_GT(got.size(), 5u);
    for (const auto& [n, values] : got) EXPECT_TRUE(values.equal(wanted.at(n))) << family << " " << graph.nodes[n].name;
    const at::Tensor logits = network.outputs(x).front().flatten();
    EXPECT_TRUE(logits.equal(wanted.at(graph.outputs.front()))) << family;
    EXPECT_TRUE(network.outputs(x.narrow(0, 1, 1))
                    .front()
                    .flatten()
                    .equal(logits.narrow(0, logits.numel() / 3, logits.numel() / 3)));
  }
}

TEST(NetworkCosts, LayersLoseWhatTheirDefinitionSays) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = calibrated("resnet8");
  const std::vector<at::Tensor> x = {scaled_images(5, 6), scaled_images(6, 2), scaled_images(8, 3)};
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  std::map<std::string, std::pair<double, double>> sums;  // signal and noise
  DeployedNetwork network(model, 6);
  for (size_t b = 0; b < 2; ++b) {  // layers are measured over the first eight images
    std::vector<at::Tensor> wanted(nodes.size());
    model.forward_partly(x[b], std::vector<bool>(nodes.size(), false),
                         [&](int n, const at::Tensor& y) { wanted[n] = y.to(at::kDouble); });
    network.run(x[b], [&](int n, const at::Tensor& y) {
      sums[nodes[n].name].first += wanted[n].square().sum().item<double>();
      sums[nodes[n].name].second += (wanted[n] - y).square().sum().item<double>();
    });
  }
  std::vector<int> asked;
  const NetworkCosts costs = network_costs(model, model, nullptr, x, 3, [&](int layer) { asked.push_back(layer); });
  EXPECT_EQ(asked, (std::vector<int>{0, 1, 2}));
  long alone = 0;
  for (const LayerCost& layer : costs.layers) {
    EXPECT_NEAR(layer.sqnr_db, 10 * std::log10(sums[layer.name].first / sums[layer.name].second), 1e-4) << layer.name;
    alone += layer.alone_lost.has_value();
  }
  EXPECT_EQ(alone, 3);
  const OutputErrors errors(model, x, float_outputs(model, x));
  EXPECT_NEAR(costs.outputs.front().lost, errors.measure().front().lost, 1e-9);
  // A model that a repair has changed is judged by the network that it was.
  QuantizedModel original = calibrated("resnet8");
  at::Tensor bias =
      model.weights().at(model.prepared().graph.nodes[model.prepared().graph.outputs.front()].name + ".bias");
  bias.add_(at::linspace(-1, 1, bias.numel()));
  const OutputErrors against(model, x, float_outputs(original, x));
  const double lost = network_costs(model, model, &original, x, 0, {}).outputs.front().lost;
  EXPECT_NEAR(lost, against.measure().front().lost, 1e-9);
  EXPECT_GT(lost, 2 * costs.outputs.front().lost);
  // Its layers are, too, where the network that it was is at hand: the biases are an error of the last layer alone.
  const NetworkCosts of_layers = network_costs(model, original, nullptr, x, static_cast<int>(nodes.size()), [](int) {});
  EXPECT_EQ(of_layers.outputs.front().lost, lost);
  for (size_t l = 0; l < costs.layers.size(); ++l) {
    const LayerCost &before = costs.layers[l], &now = of_layers.layers[l];
    EXPECT_EQ(now.name, before.name);
    if (l + 1 < costs.layers.size()) EXPECT_EQ(now.sqnr_db, before.sqnr_db) << now.name;
    if (before.alone_lost) EXPECT_EQ(now.alone_lost, before.alone_lost) << now.name;
  }
  EXPECT_LT(of_layers.layers.back().sqnr_db, costs.layers.back().sqnr_db - 3);
  // Alone is over the first batch here, which has four images and more, and as a walk of the whole network gives it.
  FloatOutputs of_first = float_outputs(original, x);
  of_first.y.resize(1);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto layer = std::find_if(of_layers.layers.begin(), of_layers.layers.end(),
                                    [&](const LayerCost& cost) { return cost.name == nodes[n].name; });
    if (layer == of_layers.layers.end()) continue;
    std::vector<bool> one(nodes.size(), false);
    one[n] = true;
    const auto whole = [&](size_t b) { return partly_quantized_outputs(original, x[b], one); };
    EXPECT_EQ(layer->alone_lost.value(), mean_lost(output_errors(original.prepared().graph, of_first, whole)));
    EXPECT_GT(*layer->alone_lost, 0) << layer->name;
  }
}

TEST(OutputErrors, AreMeasuredNoFurtherThanWhereTheyExceedWhatIsAllowed) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = calibrated("resnet8");
  const std::vector<at::Tensor> x = {scaled_images(5, 6), scaled_images(6, 2), scaled_images(7, 4)};
  const OutputErrors errors(model, x, float_outputs(model, x));
  DeployedNetwork network = errors.deployed();
  const auto lost = [&](const std::vector<double>& most) { return errors.lost_by_batches(network, most); };
  const std::vector<double> all = lost({});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all.back(), mean_lost(errors.measure()), 1e-9);
  EXPECT_EQ(lost(all), all);
  EXPECT_EQ(lost({all[0], 0.99 * all[1], all[2]}), (std::vector<double>{all[0], all[1]}));
  EXPECT_EQ(lost({0.99 * all[0], 1, 1}).size(), 1u);
}

}  // namespace
}  // namespace octet
