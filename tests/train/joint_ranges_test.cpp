// SPDX-License-Identifier: Apache-2.0
// Ranges that are chosen for all edges together.
#include "src/train/repair/joint_ranges.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "src/train/proof/deployed_network.h"
#include "src/train/repair/output_error.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

at::Tensor noise_images(int seed, int count) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return at::randn({count, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
}

/// A model that saw x, two images in 64 of which are 30 times as bright as the others.
QuantizedModel seen(const at::Tensor& x) {
  const Graph graph = build_model(test::family("resnet8", 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  model.forward(x, {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  return model;
}

at::Tensor with_far_images(int seed) {
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

/// A network, and what its noise is held to.
struct NoiseCase {
  std::string name;
  Graph graph;
  QuantSpec quant;
};

/// Functions that alone read their layer, and two outputs.
Graph two_outputs() {
  ModelSpec spec = test::family("graph", 32);  // more values of an edge than are taken
  spec.classes = 4;
  spec.graph = {{"a", "conv2d", {}, {{"out_channels", 8}, {"kernel", 3}, {"pad", 1}}},
                {"f_a", "silu", {}, {}},
                {"b", "conv2d", {"f_a"}, {{"out_channels", 8}, {"kernel", 3}, {"stride", 2}}},
                {"f_b", "silu", {}, {}},
                {"c", "conv2d", {"f_a"}, {{"out_channels", 6}, {"kernel", 3}, {"stride", 2}}},
                {"f", "flatten", {"f_b"}, {}},
                {"l", "linear", {"f"}, {{"out_channels", 4}}}};
  Graph graph = build_model(spec);
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (graph.nodes[n].name == "c") graph.outputs.push_back(static_cast<int>(n));
  return graph;
}

/// Returns for each image the noise of the outputs of a model over their signal where one edge has codes.
std::vector<double> measured_noise(QuantizedModel& model, const at::Tensor& x, const FloatOutputs& wanted, int edge,
                                   const QParams& q) {
  const Graph& graph = model.prepared().graph;
  std::vector<at::Tensor> got(graph.outputs.size());
  WalkHooks hooks;
  hooks.output = [&](int n, at::Tensor value) {
    if (n == edge)
      value = (value / q.scale).round().clamp(q.quant_min - q.zero_point, q.quant_max - q.zero_point) * q.scale;
    for (size_t o = 0; o < got.size(); ++o)
      if (graph.outputs[o] == n) got[o] = value.clone();
    return value;
  };
  walk(graph, model.weights(), x, {}, hooks);
  at::Tensor noise = at::zeros({x.size(0)});
  for (size_t o = 0; o < got.size(); ++o) {
    const at::Tensor y = wanted.y[0][o].flatten(2);
    noise += (got[o].flatten(2) - y).square().flatten(1).sum(1) / (y - wanted.median[o]).square().flatten(1).sum(1);
  }
  const float* first = noise.const_data_ptr<float>();
  return {first, first + noise.numel()};
}

TEST(JointRanges, NoiseIsThatOfTheOutputsWithOneEdgeQuantized) {
  const c10::NoGradGuard no_grad;
  QuantSpec wide;
  wide.residual_bits = 8;
  wide.activation_bits = 5;
  const std::vector<NoiseCase> cases = {{"resnet8", build_model(test::family("resnet8", 16)), {}},
                                        {"requantize", build_model(test::family("resnet8", 16)), wide},
                                        {"two outputs", two_outputs(), {}}};
  for (const NoiseCase& one : cases) {
    QuantizedModel model(prepare(fuse(one.graph), one.quant), test::random_weights(one.graph, 1), {});
    const Graph& graph = model.prepared().graph;
    at::manual_seed(8);
    const at::Tensor x = at::randn({96, 3, graph.nodes[0].shape.h, graph.nodes[0].shape.w});
    const FloatOutputs wanted = float_outputs(model, {x});
    const std::vector<EdgeNoise> edges =
        edge_noises(model, {{x.slice(0, 0, 50), x.slice(0, 50)}, {}}, wanted.median, [] {});
    std::vector<double> rounded, cut, requantized;  // logarithms of predicted over measured
    for (const EdgeNoise& edge : edges) {
      ASSERT_EQ(edge.noise.size(), static_cast<size_t>(kReaches));
      double least = 1;
      for (int k = 0; k < kReaches; ++k) {
        const double lost = mean_lost(measured_noise(model, x, wanted, edge.node, edge.ranges[k]));
        if (lost > 0.1) break;  // the first order is for small errors; one that opens a relu it does not see
        least = std::min(least, lost);
        const double ratio = mean_lost({edge.noise[k].begin(), edge.noise[k].end()}) / lost;
        EXPECT_GT(ratio, 0.25) << one.name << " " << graph.nodes[edge.node].name << " " << k << ": " << lost;
        EXPECT_LT(ratio, 4) << one.name << " " << graph.nodes[edge.node].name << " " << k << ": " << lost;
        if (k == 0) rounded.push_back(std::log(ratio));
        if (lost > 4 * least) cut.push_back(std::log(ratio));
        if (graph.nodes[edge.node].op == Op::requantize) requantized.push_back(std::log(ratio));
      }
    }
    const auto expect_unbiased = [&](const std::vector<double>& logs, double bound, const char* what) {
      ASSERT_GE(logs.size(), 3u) << one.name << ": " << what;
      const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size());
      EXPECT_NEAR(mean, 0, bound) << one.name << ": " << what;  // two random sums of few images scatter
    };
    expect_unbiased(rounded, 0.25, "rounding");
    expect_unbiased(cut, 0.25, "cutting");
    if (one.name == "requantize") expect_unbiased(requantized, 0.25, "behind requantize");
  }
}

TEST(JointRanges, NoiseOfAnImageDoesNotDependOnItsBatch) {
  const c10::NoGradGuard no_grad;
  QuantizedModel model = seen(with_far_images(3));
  const at::Tensor x = noise_images(8, 13);
  const std::vector<at::Tensor> median = float_outputs(model, {x}).median;
  const std::vector<EdgeNoise> whole = edge_noises(model, {{x}, {}}, median, [] {});
  int passes = 0;
  const std::vector<EdgeNoise> halved = edge_noises(model, {{x}, {}}, median, [&] {
    if (++passes == 2 || passes == 3) throw c10::OutOfMemoryError({"a test", "", 0}, "no memory");
  });
  EXPECT_EQ(passes, 7);  // one for the values; of 13 and 7 images, which do not fit; of 4, 4, 4 and 1
  for (size_t e = 0; e < whole.size(); ++e) {
    for (int k = 0; k < kReaches; ++k) {
      ASSERT_EQ(halved[e].noise[k].size(), 13u);
      for (size_t i = 0; i < 13; ++i)
        EXPECT_NEAR(halved[e].noise[k][i], whole[e].noise[k][i], 1e-3 * whole[e].noise[k][i]) << e << " " << k;
    }
  }
}

TEST(JointRanges, LoseLessThanEachMethodWhereAFewImagesAreFar) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = with_far_images(3);
  QuantizedModel model = seen(x);
  const std::vector<at::Tensor> held = {with_far_images(6)};
  const OutputErrors errors(model, held, float_outputs(model, held));
  model.set_edges(joint_ranges(model, {{x}, {}}, errors.median(), [] {}));
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
  EXPECT_EQ(choose_together(edges, 1, [] {}), (std::vector<int>{20, 20, 20}));
  EXPECT_TRUE(choose_together({}, 1, [] {}).empty());
}

}  // namespace
}  // namespace octet
