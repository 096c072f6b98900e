// SPDX-License-Identifier: Apache-2.0
// Ranges that are chosen for all edges together.
#include "src/train/repair/joint_ranges.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/train/proof/deployed_network.h"
#include "src/train/repair/output_error.h"
#include "tests/qat/networks.h"

namespace octet {
namespace {

at::Tensor noise_images(int seed, int count) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randn({count, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
}

/// A model that saw x, two pictures in 64 of which are 30 times as bright as the others.
QuantizedModel seen(const at::Tensor& x) {
  const Graph graph = build_model(test::family("resnet8", 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  model.forward(x, {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

at::Tensor with_far_pictures(int seed) {
  const c10::NoGradGuard no_grad;
  at::Tensor x = noise_images(seed, 64);
  x[17].mul_(30);
  x[40].mul_(30);
  return x;
}

/// The mean over images of noise / (noise + 1).
double mean_lost(const std::vector<double>& noise) {
  double sum = 0;
  for (const double n : noise) sum += n / (n + 1);
  return sum / static_cast<double>(noise.size());
}

TEST(JointRanges, NoiseIsThatOfTheOutputsWithOneEdgeQuantized) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen(with_far_pictures(3));
  const at::Tensor x = noise_images(8, 48);
  const std::vector<EdgeNoise> edges = edge_noises(model, {x.slice(0, 0, 30), x.slice(0, 30, 48)}, [] {});
  const FloatOutputs wanted = float_outputs(model, {x});
  const at::Tensor y = wanted.y[0][0], signal = (y.flatten(2) - wanted.median[0]).square().flatten(1).sum(1);
  const Graph& graph = model.prepared().graph;
  int compared = 0;
  double logs = 0;
  for (const EdgeNoise& edge : edges) {
    ASSERT_EQ(edge.noise.size(), static_cast<size_t>(kReaches));
    for (int k = 0; k < kReaches; ++k) {
      const QParams& q = edge.ranges[k];
      WalkHooks hooks;
      hooks.output = [&](int n, at::Tensor value) {
        if (n != edge.node) return value;
        return (value / q.scale).round().clamp(q.quant_min - q.zero_point, q.quant_max - q.zero_point) * q.scale;
      };
      const at::Tensor got = walk(graph, model.weights(), x, {}, hooks).reshape_as(y);
      const at::Tensor noise = (got - y).square().flatten(1).sum(1) / signal;
      std::vector<double> measured, predicted;
      for (int i = 0; i < 48; ++i) {
        measured.push_back(noise[i].item<double>());
        predicted.push_back(edge.noise[k][static_cast<size_t>(i)]);
      }
      const double lost = mean_lost(measured), ratio = mean_lost(predicted) / lost;
      if (lost > 0.1) continue;  // the first order is for small errors; one that opens a relu it does not see
      ++compared;
      logs += std::log(ratio);
      EXPECT_GT(ratio, 0.25) << graph.nodes[edge.node].name << " " << k << ": " << lost;
      EXPECT_LT(ratio, 4) << graph.nodes[edge.node].name << " " << k << ": " << lost;
    }
  }
  ASSERT_GT(compared, 30);
  EXPECT_NEAR(logs / compared, 0, 0.2);  // two random sums of few images scatter, where few values are cut off
}

TEST(JointRanges, LoseLessThanEachMethodWhereAFewPicturesAreFar) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = with_far_pictures(3);
  QuantizedModel model = seen(x);
  const std::vector<at::Tensor> held = {with_far_pictures(6)};
  const OutputErrors errors(model, held, float_outputs(model, held));
  set_edges(model, joint_ranges(model, {x}, [] {}));
  const double joint = errors.lost();
  for (const auto& [method, name] : kCalibrationMethods) {
    model.choose_edges(method, 99.9);
    EXPECT_LT(joint, errors.lost()) << name;
  }
}

/// Edges whose noise falls by 2^(-2k/3) in near images, and jumps in a far one once k exceeds 4 times its number.
TEST(JointRanges, AnImageThatIsGivenUpIsGivenUpByAllEdges) {
  std::vector<EdgeNoise> edges;
  for (int e = 0; e < 3; ++e) {
    EdgeNoise edge{.node = e, .ranges = {}, .noise = {}};
    for (int k = 0; k < kReaches; ++k) {
      const auto rounding = static_cast<float>(0.3 * reach(k) * reach(k));
      std::vector<float> images(10, rounding);
      images[7] = k > 4 * e ? 1000.0f : rounding / 100;
      if (k > 20) images[2] = images[3] = images[4] = 50.0f;
      edge.noise.push_back(std::move(images));
    }
    edges.push_back(std::move(edge));
  }
  EXPECT_EQ(choose_together(edges, 1), (std::vector<int>{20, 20, 20}));
  EXPECT_TRUE(choose_together({}, 1).empty());
}

}  // namespace
}  // namespace octet
