// SPDX-License-Identifier: Apache-2.0
#include "src/quant/layer_statistics.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/quant/plan.h"
#include "src/train/repair/quantization_noise.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

/// Weights are on a grid, as in a network that was quantized elsewhere; the input has two values.
TEST(LayerStatistics, WhatLosesNothingIsInfiniteNotZero) {
  const Graph graph = test::resnet8();
  Weights weights = test::random_weights(graph, 1);
  for (auto& [name, w] : weights) {
    if (w.dim() < 2) continue;
    const c10::NoGradGuard no_grad;
    w.copy_(w.mul(1000).round().clamp(-126, 126).div(128));
    w.flatten(1).select(1, 0).fill_(127.0 / 128);  // scale 1 / 128
  }
  QuantizedModel model(prepare(fuse(graph), {}), weights, {.observer = ObserverKind::minmax});
  const at::Tensor images = test::random_batch(1).gt(0).to(at::kFloat).mul(255.0 / 128);
  const c10::NoGradGuard no_grad;
  model.forward(images, {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  const std::vector<LayerStatistics> layers = layer_statistics(model, images);
  EXPECT_EQ(layers[0].op, "input");
  EXPECT_EQ(layers[0].sqnr_db, std::numeric_limits<double>::infinity());
  int convolutions = 0;
  for (const LayerStatistics& layer : layers) {
    if (layer.op != "conv2d" && layer.op != "linear") continue;
    EXPECT_EQ(layer.weight_sqnr_db, std::numeric_limits<double>::infinity()) << layer.name;
    ++convolutions;
  }
  EXPECT_GT(convolutions, 5);
}

/// A diverged training leaves weights whose float network overflows, while fake quantizers clip.
TEST(QuantizedModel, StatisticsCountWhatIsNotFinite) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  QuantizedModel model(prepare(fuse(graph), {}), weights, {});
  const at::Tensor images = test::random_batch(3);
  const c10::NoGradGuard no_grad;
  model.forward(images, {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  for (const auto& [name, tensor] : weights)
    if (name.ends_with("conv1.weight") || name.ends_with("conv2.weight")) tensor.mul_(1e9);
  int overflowing = 0;
  for (const LayerStatistics& layer : layer_statistics(model, images)) {
    double counted = 0;
    for (const double count : layer.activations.counts) counted += count;
    EXPECT_TRUE(std::isfinite(layer.activations.lo) && std::isfinite(layer.activations.hi)) << layer.name;
    EXPECT_GT(counted + static_cast<double>(layer.activations.not_finite), 0) << layer.name;
    if (layer.activations.not_finite == 0) continue;
    ++overflowing;
    EXPECT_FALSE(std::isfinite(layer.sqnr_db)) << layer.name;
  }
  EXPECT_GT(overflowing, 0);
}

TEST(LayerStatistics, SqnrGrowsSixDecibelsABit) {
  const Graph graph = test::resnet8();
  const Weights weights = test::random_weights(graph, 1);
  // Noise of pooled layers averages over few values: enough images for a steady estimate.
  const at::Tensor images =
      at::cat({test::random_batch(1), test::random_batch(2), test::random_batch(3), test::random_batch(4),
               test::random_batch(5), test::random_batch(6), test::random_batch(7), test::random_batch(8)});
  std::vector<LayerStatistics> by_bits[2];
  for (const int bits : {6, 8}) {
    QuantizedModel model(prepare(fuse(graph), uniform_bits(bits, bits)), weights, {.observer = ObserverKind::minmax});
    const c10::NoGradGuard no_grad;
    model.forward(images, {.observe = true, .quantize = false});
    model.calibrate(CalibrationMethod::minmax, 100);
    by_bits[bits == 8] = layer_statistics(model, images);
  }
  ASSERT_EQ(by_bits[0].size(), fuse(graph).nodes.size());
  for (size_t n = 0; n + 1 < by_bits[0].size(); ++n) {
    const LayerStatistics &six = by_bits[0][n], &eight = by_bits[1][n];
    EXPECT_NEAR(eight.sqnr_db - six.sqnr_db, 12.04, 2.0) << six.name;
    if (six.op == "conv2d") {
      EXPECT_NEAR(eight.weight_sqnr_db - six.weight_sqnr_db, 12.04, 2.0) << six.name;
    }
    EXPECT_FALSE(eight.qparams.empty());
  }
  // Ten logits carry a common shift rather than independent noise: less of it with more bits is all that is sure.
  EXPECT_GT(by_bits[0].back().sqnr_db, 10);
  EXPECT_GT(by_bits[1].back().sqnr_db, by_bits[0].back().sqnr_db + 6);
  EXPECT_TRUE(by_bits[1].back().qparams.empty());
  const LayerStatistics& input = by_bits[1][0];
  double total = 0;
  for (const double count : input.activations.counts) total += count;
  EXPECT_EQ(total, images.numel());
  EXPECT_EQ(input.activations.lo, images.min().item<float>());
}

}  // namespace
}  // namespace octet
