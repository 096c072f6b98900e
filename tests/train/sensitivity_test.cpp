// SPDX-License-Identifier: Apache-2.0
// Each layer alone quantized, and all but each: the walks quantize those nodes only, and a layer of two bits is found.
#include "src/train/repair/quantization_noise.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/train/networks.h"

namespace octet {
namespace {

at::Tensor input_images(const Shape& shape, int count, uint64_t seed) {
  const Preprocessing p = test::preprocessing_for(shape);
  const std::vector<uint8_t> images = test::random_images(shape, count, seed);
  return images_to_tensor({images.data(), count, shape}, p.mean, p.std);
}

TEST(ForwardPartly, AllIsTheSimulationAndNoneTheFloatNetwork) {
  const c10::NoGradGuard no_grad;
  for (const ModelSpec& spec : {test::families()[1], test::other_operators()}) {
    const Graph graph = build_model(spec);
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(4, 4));
    const at::Tensor x = input_images(spec.input, 3, 1);
    const size_t nodes = model.prepared().graph.nodes.size();
    const at::Tensor all = model.forward_partly(x, std::vector<bool>(nodes, true));
    EXPECT_TRUE(all.equal(model.forward(x, {}))) << spec.name;
    const at::Tensor none = model.forward_partly(x, std::vector<bool>(nodes, false));
    EXPECT_TRUE(none.equal(walk(model.prepared().graph, model.weights(), x, {}))) << spec.name;
    EXPECT_FALSE(all.equal(none));
  }
}

TEST(Sensitivity, TheLayerOfTwoBitsCostsMostAloneAndLeftOutGivesMostBack) {
  ModelSpec spec = test::family("resnet8", 32);
  const Graph graph = build_model(spec);
  QuantSpec quant = uniform_bits(8, 8);
  quant.layers = {{"layer2.0.conv1", 2, 0}};
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), quant);
  size_t seen = 0;
  const Sensitivity result = sensitivity(model, {input_images(spec.input, 4, 1), input_images(spec.input, 3, 2)}, 2,
                                         [&](size_t done, size_t all) { seen = done == all ? all : seen; });
  ASSERT_EQ(seen, result.layers.size());
  const auto alone = std::min_element(result.layers.begin(), result.layers.end(),
                                      [](const auto& a, const auto& b) { return a.alone.sqnr_db < b.alone.sqnr_db; });
  const auto all_but = std::max_element(result.layers.begin(), result.layers.end(), [](const auto& a, const auto& b) {
    return a.all_but.sqnr_db < b.all_but.sqnr_db;
  });
  EXPECT_EQ(alone->name, "layer2.0.conv1");
  EXPECT_EQ(all_but->name, "layer2.0.conv1");
  EXPECT_EQ(alone->weight_bits, 2);
  EXPECT_GT(all_but->all_but.sqnr_db, result.all.sqnr_db + 3);
  for (const LayerSensitivity& layer : result.layers) {
    ASSERT_LE(layer.worst.size(), 2u);
    if (!layer.worst.empty()) {
      EXPECT_LE(layer.worst[0].sqnr_db, layer.sqnr_db + 1e-9) << layer.name;
    }
    if (layer.worst.size() > 1) {
      EXPECT_LE(layer.worst[0].sqnr_db, layer.worst[1].sqnr_db) << layer.name;
    }
  }
}

/// A channel that is 0 for every image loses nothing: it is not among the worst, whichever channel it is.
TEST(Sensitivity, ASilentChannelIsNotAmongTheWorst) {
  const c10::NoGradGuard no_grad;
  ModelSpec spec = test::family("graph", 8);
  spec.graph = {{"a", "conv2d", {}, {{"out_channels", 4}, {"kernel", 3}, {"pad", 1}}},
                {"g", "global_avg_pool", {}, {}},
                {"f", "flatten", {}, {}},
                {"l", "linear", {}, {{"out_channels", spec.classes}}}};
  const Graph graph = build_model(spec);
  for (const int silent : {0, 2}) {
    const Weights weights = test::random_weights(graph, 3);
    for (const auto& [name, tensor] : weights)
      if (name.starts_with("a.")) tensor.detach()[silent].zero_();
    QuantizedModel model = test::calibrated(graph, weights, uniform_bits(4, 4));
    const Sensitivity result = sensitivity(model, {input_images(spec.input, 5, 1)}, 100, [](size_t, size_t) {});
    const auto layer = std::find_if(result.layers.begin(), result.layers.end(),
                                    [](const LayerSensitivity& candidate) { return candidate.name == "a"; });
    ASSERT_NE(layer, result.layers.end());
    std::vector<int> channels;
    for (const ChannelLoss& channel : layer->worst) channels.push_back(channel.channel);
    std::sort(channels.begin(), channels.end());
    std::vector<int> others = {0, 1, 2, 3};
    std::erase(others, silent);
    EXPECT_EQ(channels, others);
    for (const ChannelLoss& channel : layer->worst) EXPECT_TRUE(std::isfinite(channel.sqnr_db)) << channel.channel;
  }
}

/// Each of several outputs counts alike: one that is a thousand times as large does not hide what the other loses.
TEST(Sensitivity, OfSeveralOutputsEachCountsAlike) {
  const c10::NoGradGuard no_grad;
  ModelSpec spec = test::family("graph", 8);
  spec.graph = {{"a", "conv2d", {}, {{"out_channels", 6}, {"kernel", 3}, {"pad", 1}}},
                {"large", "conv2d", {"a"}, {{"out_channels", 4}, {"kernel", 1}}},
                {"small", "conv2d", {"a"}, {{"out_channels", 3}, {"kernel", 1}}},
                {"one", "conv2d", {"a"}, {{"out_channels", 1}, {"kernel", 1}}}};
  spec.outputs = {"large", "small", "one"};
  const Graph graph = build_model(spec);
  const Weights weights = test::random_weights(graph, 3);
  weights.at("large.weight").detach().mul_(1000);
  QuantSpec quant = uniform_bits(8, 8);
  quant.layers = {{"small", 2, 0}};
  QuantizedModel model = test::calibrated(graph, weights, quant);
  const at::Tensor x = input_images(spec.input, 5, 1);
  const Sensitivity result = sensitivity(model, {x.narrow(0, 0, 2), x.narrow(0, 2, 3)}, 1, [](size_t, size_t) {});
  const size_t nodes = model.prepared().graph.nodes.size();
  const at::Tensor wanted = model.forward_partly(x, std::vector<bool>(nodes, false)).to(at::kDouble),
                   got = model.forward_partly(x, std::vector<bool>(nodes, true)).to(at::kDouble);
  double noise = 0, same = 0;
  for (const auto& [first, channels] : {std::pair(0, 4), std::pair(4, 3), std::pair(7, 1)}) {
    const auto own = [&](const at::Tensor& y) { return y.narrow(1, first * 64, channels * 64); };
    noise += ((own(wanted) - own(got)).square().sum() / own(wanted).square().sum()).item<double>() / 3;
    const auto best = [&](const at::Tensor& y) { return own(y).reshape({5, channels, 64}).argmax(1); };
    if (channels > 1) same += best(wanted).eq(best(got)).to(at::kDouble).mean().item<double>() / 2;
  }
  EXPECT_NEAR(result.all.sqnr_db, -10 * std::log10(noise), 1e-4);
  EXPECT_NEAR(result.all.agreement, same, 1e-9);
  EXPECT_LT(result.all.sqnr_db, 25);
  EXPECT_LT(same, 1);
  const auto alone = std::min_element(result.layers.begin(), result.layers.end(),
                                      [](const auto& a, const auto& b) { return a.alone.sqnr_db < b.alone.sqnr_db; });
  EXPECT_EQ(alone->name, "small");
}

/// The losses of a layer's channels are those computed here from its two outputs.
TEST(Sensitivity, ChannelsAreThoseOfTheOutput) {
  const c10::NoGradGuard no_grad;
  const ModelSpec spec = test::other_operators();
  const Graph graph = build_model(spec);
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(4, 4));
  const at::Tensor x = input_images(spec.input, 5, 1);
  const Sensitivity result = sensitivity(model, {x}, 100, [](size_t, size_t) {});
  at::Tensor simulated, wanted;
  model.forward(x, {}, [&](int n, const at::Tensor& y) {
    if (model.prepared().graph.nodes[n].name == "g") simulated = y.clone();
  });
  WalkHooks hooks;
  hooks.output = [&](int n, at::Tensor y) {
    if (model.prepared().graph.nodes[n].name == "g") wanted = y.clone();
    return y;
  };
  walk(model.prepared().graph, model.weights(), x, {}, hooks);
  const auto layer = std::find_if(result.layers.begin(), result.layers.end(),
                                  [](const LayerSensitivity& candidate) { return candidate.name == "g"; });
  ASSERT_NE(layer, result.layers.end());
  ASSERT_FALSE(layer->worst.empty());
  for (const ChannelLoss& channel : layer->worst) {
    const at::Tensor a = wanted.select(1, channel.channel).to(at::kDouble), b = simulated.select(1, channel.channel);
    const double expected = 10 * std::log10(a.square().sum().item<double>() / (a - b).square().sum().item<double>());
    EXPECT_NEAR(channel.sqnr_db, expected, 1e-3);
  }
}

}  // namespace
}  // namespace octet
