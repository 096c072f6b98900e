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

at::Tensor pictures(int seed, int count) {
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
  at::Tensor x = pictures(seed, 64);
  x[17].mul_(30);
  x[40].mul_(30);
  return x;
}

TEST(JointRanges, NoiseIsThatOfTheOutputsWithOneEdgeQuantized) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = with_far_pictures(3);
  QuantizedModel model = seen(x);
  const at::Tensor few = x.slice(0, 0, 12);  // none of them far
  const std::vector<EdgeNoise> edges = edge_noises(model, {few.slice(0, 0, 5), few.slice(0, 5, 12)});
  const FloatOutputs wanted = float_outputs(model, {few});
  const at::Tensor y = wanted.y[0][0];
  const at::Tensor signal = (y.flatten(2) - wanted.median[0]).square().flatten(1).sum(1);
  for (const EdgeNoise& edge : edges) {
    std::vector<bool> alone(model.prepared().graph.nodes.size());
    ASSERT_EQ(edge.noise.size(), static_cast<size_t>(kReaches));
    for (const int k : {2, 12}) {  // rounds to few codes; cuts off
      model.set_edge(edge.node, edge.ranges[k]);
      // The node alone has its weights quantized, too, so the edge is quantized by a hook on the float network.
      double measured = 0, predicted = 0;
      at::Tensor got;
      const QParams q = edge.ranges[k];
      WalkHooks hooks;
      hooks.output = [&](int n, at::Tensor v) {
        if (n != edge.node) return v;
        const at::Tensor code =
            (v / q.scale).round().clamp(q.quant_min - q.zero_point, q.quant_max - q.zero_point);
        return code * q.scale;
      };
      got = walk(model.prepared().graph, model.weights(), few, {}, hooks).reshape_as(y);
      const at::Tensor noise = (got - y).square().flatten(1).sum(1) / signal;
      for (int i = 0; i < 12; ++i) {
        measured += noise[i].item<double>();
        predicted += edge.noise[k][static_cast<size_t>(i)];
      }
      const double ratio = predicted / measured;
      EXPECT_GT(ratio, 0.4) << model.prepared().graph.nodes[edge.node].name << " " << k << ": " << measured;
      EXPECT_LT(ratio, 2.5) << model.prepared().graph.nodes[edge.node].name << " " << k << ": " << measured;
    }
  }
}

TEST(JointRanges, LoseLessThanEachMethodWhereAFewPicturesAreFar) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = with_far_pictures(3);
  QuantizedModel model = seen(x);
  const std::vector<at::Tensor> held = {with_far_pictures(6)};
  const OutputErrors errors(model, held, float_outputs(model, held));
  set_edges(model, joint_ranges(model, {x}));
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
