// SPDX-License-Identifier: Apache-2.0
// Bias correction restores the means of the float network, in every kind of network and at few bits.
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/sort.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/net/zoo.h"
#include "src/quant/plan.h"
#include "src/train/repair/correct_biases.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

at::Tensor input_images(const Shape& shape, int count) {
  const Preprocessing p = test::preprocessing_for(shape);
  const std::vector<uint8_t> images = test::random_images(shape, count, 5);
  return images_to_tensor({images.data(), count, shape}, p.mean, p.std);
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
  const at::Tensor x = input_images(graph.nodes[0].shape, 4);
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

/// The values of each layer's channels before residual and activation, [K, values] by node.
std::vector<at::Tensor> channel_values(QuantizedModel& model, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const std::vector<Node>& nodes = model.prepared().graph.nodes;
  std::vector<at::Tensor> result(nodes.size());
  model.forward_changing(x, [&](int n, Unfinished& y) {
    if (!has_weight(nodes[n].op)) return;
    const at::Tensor all = y.bias.defined() ? y.value + y.bias.view({1, -1, 1, 1}) : y.value;
    result[n] = all.permute({1, 0, 2, 3}).flatten(1).clone();
  });
  return result;
}

std::vector<at::Tensor> float_values(const QuantizedModel& model, const at::Tensor& x) {
  const c10::NoGradGuard no_grad;
  const Graph& graph = model.prepared().graph;
  std::vector<at::Tensor> result(graph.nodes.size());
  WalkHooks hooks;
  hooks.finish = [&](int n, const Unfinished& y) {
    if (has_weight(graph.nodes[n].op)) {
      const at::Tensor all = y.bias.defined() ? y.value + y.bias.view({1, -1, 1, 1}) : y.value;
      result[n] = all.permute({1, 0, 2, 3}).flatten(1).clone();
    }
    return finished(y, graph.nodes[n].activation);
  };
  walk(graph, model.weights(), x, {}, hooks);
  return result;
}

/// Returns the mean of the middle 80 % of each row, double [K], by sorting.
at::Tensor middle(const at::Tensor& rows) {
  const int64_t n = rows.size(1), cut = n / 10;
  return std::get<0>(rows.to(at::kDouble).sort(1)).slice(1, cut, n - cut).mean(at::IntArrayRef{1});
}

/// One convolution of 1x1 that passes two channels on, calibrated so that values above 1 are cut off.
QuantizedModel cuts_above_one() {
  GraphBuilder b("passes", {2, 16, 16}, false);
  b.conv("conv", b.input(), {.out_channels = 2, .bias = true});
  const Graph graph = b.finish();
  Weights weights = test::random_weights(graph, 3);
  const c10::NoGradGuard no_grad;
  weights.at("conv.weight").copy_(at::eye(2).view({2, 2, 1, 1}));
  weights.at("conv.bias").zero_();
  QuantizedModel model(prepare(fuse(graph), {}), weights, {});
  model.forward(at::rand({2, 2, 16, 16}), {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

TEST(BiasCorrection, IsNotDecidedByTheFewValuesThatARangeCutsOff) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = cuts_above_one();
  at::Tensor x = at::rand({4, 2, 16, 16});
  x.slice(2, 0, 1).slice(3, 0, 8).fill_(100);  // one value in 32: the mean error of a channel is 3
  correct_biases(model, model.weights(), x);
  const at::Tensor bias = model.weights().at("conv.bias");
  EXPECT_LT(bias.abs().max().item<double>(), 0.01);
  EXPECT_GT(bias.abs().max().item<double>(), 0);
}

/// Where a channel has many values, a sample is taken that is spread over images and pixels.
TEST(BiasCorrection, LooksAtASampleOfManyValues) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = cuts_above_one();
  const at::Tensor x = at::rand({12, 2, 16, 16}) * 0.9;  // 3,072 values a channel
  const std::vector<at::Tensor> wanted = float_values(model, x);
  model.weights().at("conv.weight").mul_(0.9);  // each value is wrong by a tenth of itself
  Weights floats = model.weights();
  floats.at("conv.weight") = floats.at("conv.weight") / 0.9;
  correct_biases(model, floats, x);
  const at::Tensor left = middle(wanted[1] - channel_values(model, x)[1]).abs();
  EXPECT_LT(left.max().item<double>(), 0.004);  // 1,024 values of deviation 0.03: 0.001; what was wrong: 0.045
}

TEST(BiasCorrection, LeavesLayersOfFewValuesAlone) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = cuts_above_one();
  for (const int64_t side : {8, 16}) {  // 64 and 256 values of a channel
    correct_biases(model, model.weights(), at::rand({1, 2, side, side}));
    EXPECT_EQ(model.weights().at("conv.bias").count_nonzero().item<int64_t>() > 0, side == 16);
  }
}

TEST(BiasCorrection, LeavesAtMostFivePercentOfEachChannelsShift) {
  for (const ModelSpec& spec : {test::families()[0], test::families()[1], test::families()[6]}) {
    const Graph graph = build_model(spec);
    QuantSpec quant = uniform_bits(4, 4);
    quant.weight_granularity = Granularity::per_tensor;
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 7), quant);
    const at::Tensor x = input_images(graph.nodes[0].shape, 1);
    const std::vector<at::Tensor> wanted = float_values(model, x), before = channel_values(model, x);
    correct_biases(model, model.weights(), x);
    const std::vector<at::Tensor> after = channel_values(model, x);
    int channels = 0;
    for (size_t n = 0; n < wanted.size(); ++n) {
      if (!wanted[n].defined() || wanted[n].size(1) < 128) continue;
      const at::Tensor was = middle(wanted[n] - before[n]).abs(), now = middle(wanted[n] - after[n]).abs();
      const at::Tensor rounding = (wanted[n].abs().mean(at::IntArrayRef{1}).to(at::kDouble) + 1) * 1e-5;
      EXPECT_TRUE(now.le(was * 0.05 + rounding).all().item<bool>())
          << spec.name << " " << model.prepared().graph.nodes[n].name;
      channels += static_cast<int>(was.gt(rounding * 20).sum().item<int64_t>());
    }
    EXPECT_GT(channels, 50) << spec.name;  // or there was nothing to correct
  }
}

struct Losses {
  double evaluated = 0, trained = 0;  ///< of the outputs: as calibrated, and in the first step of QAT
};

/// Two layers with BatchNorm, whose statistics are those of the images, and a last one with a bias, at four bits.
/// Returns what quantization loses after bias correction, if any.
Losses lost_with(std::optional<BatchNormTakes> takes) {
  GraphBuilder b("normalized", {3, 16, 16}, false);
  int x = b.unary(Op::relu, "relu1", b.conv_bn("conv1", "bn1", b.input(), {.out_channels = 16, .kernel = 3, .pad = 1}));
  x = b.unary(Op::relu, "relu2", b.conv_bn("conv2", "bn2", x, {.out_channels = 16, .kernel = 3, .pad = 1}));
  b.conv("conv3", x, {.out_channels = 4, .bias = true});
  const Graph graph = b.finish();
  const Weights floats = test::random_weights(graph, 7);
  const at::Tensor images = input_images(graph.nodes[0].shape, 6);
  const c10::NoGradGuard no_grad;
  for (int step = 0; step < 200; ++step) walk(graph, floats, images, {.batch_norm_training = true});
  const at::Tensor wanted = walk(graph, floats, images, {});

  QuantSpec quant = uniform_bits(4, 4);
  quant.weight_granularity = Granularity::per_tensor;
  QuantizedModel model = test::calibrated(graph, copies_of(floats), quant);
  if (takes) correct_biases(model, floats, images, *takes);
  const auto loss = [&](const QuantizedModel::Mode& mode) {
    return (model.forward(images, mode) - wanted).square().mean().item<double>();
  };
  const double evaluated = loss({});
  return {evaluated, loss({.training = true, .batch_norm_training = true})};
}

TEST(BiasCorrection, OfLiveBatchNormDoesNotHarmTheFirstStepOfQat) {
  const Losses none = lost_with({}), mean = lost_with(BatchNormTakes::running_mean),
               bias = lost_with(BatchNormTakes::bias);
  EXPECT_LT(mean.evaluated, 0.9 * none.evaluated);
  EXPECT_NEAR(mean.evaluated, bias.evaluated, 1e-4 * bias.evaluated);
  EXPECT_LT(mean.trained, none.trained);
  EXPECT_GT(bias.trained, none.trained);  // which is why
}

}  // namespace
}  // namespace octet
