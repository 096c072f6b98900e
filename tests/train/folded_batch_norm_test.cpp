// SPDX-License-Identifier: Apache-2.0
// A frozen BatchNorm inside the layer before it trains as at::batch_norm in evaluation mode does.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <set>

#include "src/quant/node_constants.h"
#include "src/quant/plan.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

constexpr QuantizedModel::Mode kFrozen{.training = true};
constexpr int kSeeds = 40;

using Gradients = std::map<std::string, at::Tensor>;

/// Returns by parameter the gradients of a weighted sum of the logits; "x" is the image's.
template <class F>
Gradients gradients(const Weights& weights, const at::Tensor& images, const F& forward) {
  for (const auto& [name, w] : weights) w.mutable_grad().reset();
  const at::Tensor x = images.detach().clone().requires_grad_(true);
  const at::Tensor logits = forward(x);
  (logits * at::arange(1, logits.numel() + 1, logits.options()).view(logits.sizes()).cos()).sum().backward();
  Gradients result{{"x", x.grad()}};
  for (const auto& [name, w] : weights)
    if (w.requires_grad()) result.emplace(name, w.grad().clone());
  return result;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / (b.norm().item<double>() + 1e-30);
}

/// Returns the largest relative difference of all tensors, and the tensor's name.
std::pair<double, std::string> largest_distance(const Gradients& a, const Gradients& b) {
  std::pair<double, std::string> largest{0, "none"};
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, gradient] : a) {
    const double d = distance(gradient, b.at(name));
    if (!(d <= largest.first)) largest = {d, name};
  }
  return largest;
}

at::Tensor input_images(const Graph& graph, int seed) {
  at::manual_seed(seed);
  const Shape& s = graph.nodes[0].shape;
  return at::randn({5, s.c, s.h, s.w});
}

/// Walks with every BatchNorm folded, one by one or all at once.
WalkHooks folding(const Graph& graph, const Weights& weights, bool at_once) {
  std::map<int, GainAndBias> folded;
  std::vector<FixedBatchNorm> all;
  std::vector<int> nodes;
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    const Node& node = graph.nodes[n];
    if (node.batch_norm.empty()) continue;
    nodes.push_back(n);
    all.push_back(fixed_batch_norm(weights, node, node.bias ? weights.at(node.name + ".bias") : at::Tensor()));
  }
  const std::vector<GainAndBias> of_all = gains_and_biases(all);
  for (size_t i = 0; i < nodes.size(); ++i) folded.emplace(nodes[i], at_once ? of_all[i] : gain_and_bias(all[i]));
  WalkHooks hooks;
  hooks.parameters = [folded](int n, const LayerParameters& own) {
    return folded.count(n) != 0 ? fold_batch_norm(own, folded.at(n)) : own;
  };
  return hooks;
}

TEST(FoldedBatchNorm, TrainsAsEvaluationModeInDouble) {
  int batch_norms = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Graph graph = fuse(test::random_graph(seed, /*branches=*/0, /*classifier=*/true));
    Weights weights;
    for (const auto& [name, w] : test::random_weights(graph, seed))
      weights.emplace(name, w.detach().to(at::kDouble).requires_grad_(w.requires_grad()));
    for (const Node& node : graph.nodes) batch_norms += node.batch_norm.empty() ? 0 : 1;
    const at::Tensor x = input_images(graph, seed).to(at::kDouble);
    at::Tensor logits[2];
    const Gradients want =
        gradients(weights, x, [&](const at::Tensor& t) { return logits[0] = walk(graph, weights, t, {}); });
    for (const bool at_once : {false, true}) {
      const Gradients got = gradients(weights, x, [&](const at::Tensor& t) {
        return logits[1] = walk(graph, weights, t, {}, folding(graph, weights, at_once));
      });
      EXPECT_LT(distance(logits[1], logits[0]), 1e-12) << seed;
      const auto [worst, name] = largest_distance(got, want);
      EXPECT_LT(worst, 1e-10) << seed << " " << name << (at_once ? ", all at once" : "");
    }
  }
  EXPECT_GT(batch_norms, kSeeds);
}

/// Walks as a step with frozen BatchNorm did before BatchNorm was folded: fake-quantized weights, at::batch_norm,
/// fake-quantized edges.
WalkHooks unfolded(const QuantizedModel& model) {
  WalkHooks hooks;
  const FloatParams scales = model.weight_scales();
  hooks.parameters = [&model, scales](int n, const LayerParameters& own) {
    const Prepared& p = model.prepared();
    return LayerParameters{fake_quantize_weight(own.weight, scales.at(p.graph.nodes[n].name), p.weight_codes(n)),
                           own.bias};
  };
  hooks.output = [&model, edges = model.edges()](int n, at::Tensor y) {
    const Prepared& p = model.prepared();
    return p.root[n] == n && !p.float_output(n) ? fake_quantize(y, edges[n]) : y;
  };
  return hooks;
}

/// A code that rounding errors change moves a gradient by more than they do: most networks show none.
TEST(FoldedBatchNorm, AFrozenStepOfQatIsTheOneWithBatchNormInIt) {
  int equal = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Graph graph = test::random_graph(seed, /*branches=*/0, /*classifier=*/true);
    QuantizedModel model = test::calibrated(graph, test::random_weights(graph, seed), {});
    const at::Tensor x = input_images(graph, seed);
    const Gradients want = gradients(model.weights(), x, [&](const at::Tensor& t) {
      return walk(model.prepared().graph, model.weights(), t, {}, unfolded(model));
    });
    const Gradients got = gradients(model.weights(), x, [&](const at::Tensor& t) { return model.forward(t, kFrozen); });
    const auto [worst, name] = largest_distance(got, want);
    EXPECT_LT(worst, 0.05) << seed << " " << name;
    equal += worst < 2e-5 ? 1 : 0;
  }
  RecordProperty("equal", equal);
  EXPECT_GE(equal, kSeeds * 9 / 10);
}

/// Returns the names of all nodes that the backward pass runs.
std::set<std::string> backward_functions(const at::Tensor& loss) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> next{loss.grad_fn().get()};
  std::set<std::string> names;
  while (!next.empty()) {
    torch::autograd::Node* node = next.back();
    next.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    names.insert(node->name());
    for (const torch::autograd::Edge& edge : node->next_edges()) next.push_back(edge.function.get());
  }
  return names;
}

TEST(FoldedBatchNorm, NoBatchNormRunsOnceItIsFrozen) {
  const Graph graph = build_model(test::family("resnet8", 32));
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), {});
  QuantizedModel::Mode live = kFrozen;
  live.batch_norm_training = true;
  const at::Tensor x = input_images(graph, 1);
  const std::string name = "NativeBatchNormBackward0";
  EXPECT_EQ(backward_functions(model.forward(x, live)).count(name), 1u);
  EXPECT_EQ(backward_functions(model.forward(x, kFrozen)).count(name), 0u);
}

TEST(FoldedBatchNorm, CodesStayThoseOfTheWeightItself) {
  const Graph graph = build_model(test::family("resnet8", 32));
  const QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 1), {});
  const Node& node = model.prepared().graph.nodes[1];
  ASSERT_FALSE(node.batch_norm.empty());
  const c10::NoGradGuard no_grad;
  const at::Tensor w = model.weights().at(node.name + ".weight");
  const std::vector<float> scales = model.weight_scales().at(node.name);
  const GainAndBias folded = gain_and_bias(fixed_batch_norm(model.weights(), node, {}));
  const at::Tensor product = fold_batch_norm({fake_quantize_weight(w, scales, {}), {}}, folded).weight;
  int seen = 0;
  for (int64_t k = 0; k < w.size(0); ++k) {
    const float gain = folded.gain[k].item<float>();
    if (gain == 0) continue;
    ++seen;
    const at::Tensor codes = (product[k] / (gain * scales[k])).round(), own = (w[k] / scales[k]).round();
    EXPECT_TRUE(at::equal(codes, own)) << k;
    EXPECT_EQ(own.abs().max().item<float>(), 127);
  }
  EXPECT_GT(seen, 8);
}

}  // namespace
}  // namespace octet
