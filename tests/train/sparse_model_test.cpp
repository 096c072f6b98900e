// SPDX-License-Identifier: Apache-2.0
// 2:4 sparse weights in QAT: which layers have them, what the network uses of dense weights, and their gradients.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "src/base/error.h"
#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/qat/quantized_model.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QuantSpec kSparse{.sparsity = Sparsity::two_of_four};

/// Returns a weight as [groups, 4]: four consecutive input channels at one position of the kernel.
at::Tensor groups_of(const at::Tensor& weight, const WeightRows& rows) {
  return weight.reshape({weight.size(0), rows.inputs / 4, 4, rows.taps}).transpose(2, 3).reshape({-1, 4});
}

TEST(SparseModel, DepthwiseFirstAndOddLayersStayDenseAndAreNamed) {
  const Graph mobile = fuse(build_model({.name = "mobilenet_v2", .input = {3, 32, 32}, .classes = 10}));
  const std::vector<std::string> reasons = dense_reasons(mobile);
  std::map<std::string, int> count;
  for (size_t n = 0; n < reasons.size(); ++n) {
    const Node& node = mobile.nodes[n];
    if (!has_weight(node.op)) {
      EXPECT_EQ(reasons[n], "") << node.name;
      continue;
    }
    ++count[reasons[n]];
    EXPECT_EQ(reasons[n] == "depthwise", node.op == Op::conv2d && node.groups > 1) << node.name;
  }
  EXPECT_EQ(count, (std::map<std::string, int>{{"", 35}, {"depthwise", 17}, {"reads the image", 1}}));
}

TEST(SparseModel, ANetworkThatNoneFitsIsRefused) {
  ModelSpec spec{.name = "graph", .input = {3, 8, 8}, .classes = 4};
  spec.graph = {{"conv1", "conv2d", {}, {{"out_channels", 6}, {"kernel", 3}}},
                {"pool", "global_avg_pool", {}, {}},
                {"flatten", "flatten", {}, {}},
                {"fc", "linear", {}, {{"out_channels", 4}}}};
  const Graph graph = fuse(build_model(spec));
  EXPECT_NO_THROW(prepare(graph, {}));
  try {
    prepare(graph, kSparse);
    FAIL() << "conv1 reads the image, fc has six inputs";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(std::string(error.what()).find("quant.sparsity: 2:4 fits no layer"), std::string::npos) << error.what();
  }
}

/// Convolutions in both layouts, with groups, and a linear on pixels: the network uses the larger two of each four
/// weights, and their gradient goes to all four.
TEST(SparseModel, UsesTheLargerTwoOfFourAndPassesGradientsToAll) {
  const Graph graph = build_model({.name = "small_cnn", .input = {3, 16, 16}, .classes = 10});
  const Prepared prepared = prepare(fuse(graph), kSparse);
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    Weights weights = test::random_weights(graph, 3);
    for (auto& [name, w] : weights)
      if (w.dim() == 4) w.set_data(w.detach().contiguous(format));
    const Weights used = sparse_weights(prepared, weights);
    int sparse = 0;
    for (int n = 0; n < static_cast<int>(prepared.graph.nodes.size()); ++n) {
      const Node& node = prepared.graph.nodes[n];
      if (!has_weight(node.op)) continue;
      const at::Tensor dense = weights.at(node.name + ".weight"), kept = used.at(node.name + ".weight");
      if (!prepared.sparse[n]) {
        EXPECT_TRUE(kept.is_same(dense)) << node.name;
        continue;
      }
      ++sparse;
      const at::Tensor magnitudes = groups_of(dense.detach(), weight_rows(prepared.graph, n)).abs();
      const at::Tensor second = std::get<0>(magnitudes.topk(2, 1)).select(1, 1).unsqueeze(1);
      const at::Tensor want = groups_of(dense.detach(), weight_rows(prepared.graph, n)) * magnitudes.ge(second);
      EXPECT_TRUE(at::equal(groups_of(kept.detach(), weight_rows(prepared.graph, n)), want)) << node.name;
      EXPECT_EQ(kept.strides(), dense.strides());
      const at::Tensor dy = at::randn(kept.sizes());
      kept.backward(dy);
      EXPECT_TRUE(at::equal(dense.grad(), dy)) << node.name;
    }
    EXPECT_GE(sparse, 2);
    const at::Tensor fc = weights.at("linear.weight"), before = fc.grad().clone();
    decay_pruned(prepared, weights, 0.5);
    const at::Tensor pruned = used.at("linear.weight").detach().eq(0);
    EXPECT_LE((fc.grad() - (before + 0.5 * fc.detach() * pruned)).abs().max().item<float>(), 1e-6);
    EXPECT_GT((fc.grad() - before).abs().max().item<float>(), 1e-3);
  }
}

/// The checkpoint is 2:4 sparse (or convert would refuse it), its scales are those of the kept weights, and the dense
/// weights do not change.
TEST(SparseModel, ConvertsToSparseCodes) {
  const Graph graph = build_model({.name = "resnet8", .input = {3, 16, 16}});
  const Weights weights = test::random_weights(graph, 5);
  const QuantizedModel model = test::calibrated(graph, weights, kSparse, CalibrationMethod::mse);
  const Int8Graph int8 = model.convert(test::preprocessing_for({3, 16, 16}), {});
  int sparse = 0;
  for (const Int8Node& node : int8.nodes) {
    if (node.weight.empty()) continue;
    EXPECT_EQ(node.two_of_four, node.name != "conv1") << node.name;
    sparse += node.two_of_four;
    const double zeros = static_cast<double>(std::count(node.weight.begin(), node.weight.end(), 0));
    EXPECT_EQ(zeros >= 0.5 * static_cast<double>(node.weight.size()), node.two_of_four) << node.name;
  }
  EXPECT_GE(sparse, 7);
  EXPECT_EQ(model.weights().at("linear.weight").eq(0).sum().item<int64_t>(), 0);
}

}  // namespace
}  // namespace octet
