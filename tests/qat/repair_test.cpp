// SPDX-License-Identifier: Apache-2.0
// Bias correction restores the means of the float network, in every kind of network and at few bits.
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/quant/plan.h"
#include "src/train/repair/correct_biases.h"
#include "tests/qat/networks.h"

namespace octet {
namespace {

at::Tensor pictures(const Shape& shape, int count) {
  const Preprocessing p = test::preprocessing_for(shape);
  const std::vector<uint8_t> images = test::random_images(shape, count, 5);
  return images_to_tensor(images.data(), count, shape, p.mean, p.std);
}

std::vector<ChannelMoments> float_moments(const QuantizedModel& model, const at::Tensor& x) {
  MomentsObserver observer(model.prepared().graph, model.weights());
  for (const at::Tensor& part : x.chunk(2)) observer.see(part);
  return observer.moments();
}

TEST(ChannelMoments, AreThoseOfTheLayersOutputs) {
  const Graph graph = build_model(test::family("resnet8", 32));
  const Weights weights = test::random_weights(graph, 3);
  const QuantizedModel model = test::calibrated(graph, weights, {});
  const at::Tensor x = pictures(graph.nodes[0].shape, 4);
  const std::vector<ChannelMoments> moments = float_moments(model, x);
  const c10::NoGradGuard no_grad;
  int checked = 0;
  WalkHooks hooks;  // of the graph before fuse, where BatchNorm is a node
  hooks.output = [&](int n, at::Tensor y) {
    if (graph.nodes[n].op != Op::batch_norm) return y;
    const std::vector<Node>& fused = model.prepared().graph.nodes;
    const auto layer =
        std::find_if(fused.begin(), fused.end(), [&](const Node& f) { return f.batch_norm == graph.nodes[n].name; });
    const ChannelMoments& of_layer = moments[layer - fused.begin()];
    const at::Tensor wide = y.to(at::kDouble).transpose(0, 1).flatten(1);
    for (int64_t k = 0; k < wide.size(0); ++k) {
      EXPECT_NEAR(of_layer.mean[k], wide[k].mean().item<double>(), 1e-5);
      EXPECT_NEAR(of_layer.deviation[k], wide[k].std(/*unbiased=*/false).item<double>(), 1e-4);
      ++checked;
    }
    return y;
  };
  walk(graph, weights, x, {}, hooks);
  EXPECT_GT(checked, 100);
}

TEST(BiasCorrection, LeavesAtMostFivePercentOfEachChannelsMeanError) {
  for (const ModelSpec& spec : {test::families()[0], test::families()[1], test::families()[6]}) {
    const Graph graph = build_model(spec);
    QuantSpec quant = uniform_bits(4, 4);
    quant.weight_granularity = Granularity::per_tensor;
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 7), quant);
    const at::Tensor x = pictures(graph.nodes[0].shape, 6);
    const std::vector<ChannelMoments> wanted = float_moments(model, x), before = quantized_means(model, x);
    correct_biases(model, wanted, x);
    const std::vector<ChannelMoments> after = quantized_means(model, x);
    int channels = 0;
    for (size_t n = 0; n < wanted.size(); ++n) {
      for (size_t k = 0; k < wanted[n].mean.size(); ++k) {
        const double was = std::fabs(before[n].mean[k] - wanted[n].mean[k]);
        const double rounding = 1e-5 * (1 + std::fabs(wanted[n].mean[k]));
        EXPECT_LE(std::fabs(after[n].mean[k] - wanted[n].mean[k]), 0.05 * was + rounding)
            << spec.name << " " << model.prepared().graph.nodes[n].name << " " << k << ", was " << was;
        channels += was > 20 * rounding;
      }
    }
    EXPECT_GT(channels, 50) << spec.name;  // or there was nothing to correct
  }
}

}  // namespace
}  // namespace octet
