// SPDX-License-Identifier: Apache-2.0
// An outlier among the values: wide_edges() names the edges that spend codes on it.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "src/quant/plan.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

at::Tensor input_images() {
  at::manual_seed(3);
  return at::randn({64, 3, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(WideEdges, ImagesLikeOneAnotherHaveNone) {
  const c10::NoGradGuard no_grad;
  const Graph graph = build_model(test::family("resnet8", 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  model.forward(input_images(), {.observe = true, .quantize = false});
  model.calibrate(CalibrationMethod::minmax, 100);
  const auto edges = model.wide_edges(8);
  EXPECT_TRUE(edges.empty()) << edges.front().node;
}

TEST(WideEdges, TheFurthestComesFirstAndPercentileLeavesItOut) {
  const c10::NoGradGuard no_grad;
  const Graph graph = build_model(test::family("resnet8", 16));
  QuantizedModel model(prepare(fuse(graph), {}), test::random_weights(graph, 1), {});
  at::Tensor x = input_images();
  x[63][0][0][0] = 400;  // one value of 49,152
  model.forward(x, {.observe = true, .quantize = false});

  model.calibrate(CalibrationMethod::minmax, 100);
  const auto edges = model.wide_edges(8);
  ASSERT_FALSE(edges.empty());
  EXPECT_EQ(edges.front().node, "input");
  EXPECT_NEAR(edges.front().reach.codes, 400, 4);  // the zero point is rounded
  const at::Tensor sorted = std::get<0>(x.abs().flatten().sort());
  const double most = sorted[static_cast<int64_t>(0.999 * static_cast<double>(sorted.numel()))].item<double>();
  EXPECT_NEAR(edges.front().reach.values, most, 0.1 * most);  // within a bin of 800 / 2048
  for (size_t i = 1; i < edges.size(); ++i)
    EXPECT_GE(edges[i - 1].reach.codes / edges[i - 1].reach.values, edges[i].reach.codes / edges[i].reach.values);

  model.calibrate(CalibrationMethod::percentile, 99.9);
  EXPECT_TRUE(model.wide_edges(2).empty());
}

}  // namespace
}  // namespace octet
