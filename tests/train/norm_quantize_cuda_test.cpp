// SPDX-License-Identifier: Apache-2.0
// Live BatchNorm in the quantizer's passes, compared with LibTorch's BatchNorm and a quantizer behind it: as one
// operator, and in a training step of whole networks.
#include "src/train/qat/joined_operators.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "src/train/model/step_graph.h"
#include "src/train/qat/fake_quantize.h"
#include "tests/cuda/gpu.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

double norm_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

/// A layer's tensors on the GPU.
struct Layer {
  at::Tensor x, residual, weight, bias, mean, variance, dy, also;
  BatchNormTensors batch_norm() const { return {weight, bias, mean, variance}; }
};

Layer random_layer(at::ScalarType type, bool residual) {
  at::manual_seed(9);
  const at::TensorOptions floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const auto draw = [&] { return at::randn({8, 48, 14, 14}, floats).contiguous(at::MemoryFormat::ChannelsLast); };
  return {(draw() * 2 + 1).to(type).set_requires_grad(true),
          residual ? draw().to(type).set_requires_grad(true) : at::Tensor(),
          (at::rand({48}, floats) + 0.5).set_requires_grad(true),
          at::randn({48}, floats).set_requires_grad(true),
          at::zeros({48}, floats),
          at::ones({48}, floats),
          draw().to(type),
          draw().to(type)};
}

/// An EdgeQuantizer on the GPU.
class EdgeOnGpu {
 public:
  explicit EdgeOnGpu(const kernels::EdgeQuantizer& edge)
      : bytes_(at::empty({sizeof edge}, at::TensorOptions(at::kCUDA).dtype(at::kByte))) {
    kernels::EdgeQuantizer copy = edge;
    bytes_.copy_(at::from_blob(&copy, {sizeof copy}, at::kByte));
  }
  kernels::EdgeQuantizer* get() const { return static_cast<kernels::EdgeQuantizer*>(bytes_.data_ptr()); }

 private:
  at::Tensor bytes_;
};

const kernels::EdgeQuantizer kEdge{.qparams = {0.02f, 100, 0, 255}, .affine = 1};

struct LayerResult {
  at::Tensor y, dx, dresidual, dweight, dbias, mean, variance;
};

/// Runs forward and backward with a gradient for each of two readers.
LayerResult run_layer(const Layer& layer, at::Tensor first, const at::Tensor& second) {
  (first.to(at::kFloat) * layer.dy + second.to(at::kFloat) * layer.also).sum().backward();
  return {first.detach(),      layer.x.grad(),    layer.residual.defined() ? layer.residual.grad() : at::Tensor(),
          layer.weight.grad(), layer.bias.grad(), layer.mean,
          layer.variance};
}

LayerResult run_fused(const Layer& layer, const EdgeOnGpu& edge) {
  const Twins twins = cuda_norm_quantize({.value = layer.x, .residual = layer.residual}, layer.batch_norm(),
                                         {.edge = edge.get(), .activation = kernels::kRelu});
  EXPECT_EQ(twins.first.const_data_ptr(), twins.second.const_data_ptr());
  return run_layer(layer, twins.first, twins.second);
}

LayerResult run_apart(const Layer& layer, const EdgeOnGpu& edge) {
  const at::Tensor normal = at::batch_norm(layer.x, layer.weight, layer.bias, layer.mean, layer.variance, true,
                                           kBatchNormMomentum, kBatchNormEpsilon, /*cudnn_enabled=*/true);
  const at::Tensor y =
      cuda_fake_quantize(normal, {}, layer.residual, {.device = &edge.get()->qparams, .activation = kernels::kRelu});
  return run_layer(layer, y, y);
}

/// Values next to a boundary may take the other code, where float or the type rounds BatchNorm's result otherwise; and
/// a bit of the mask in some thousands goes with them.
TEST(NormQuantizeOperatorCuda, IsBatchNormAndThenTheQuantizer) {
  OCTET_NEEDS_GPU();
  const EdgeOnGpu edge(kEdge);
  for (const auto& [type, bound] : {std::pair{at::kHalf, 2e-2}, std::pair{at::kBFloat16, 5e-2}}) {
    for (const bool residual : {false, true}) {
      const LayerResult got = run_fused(random_layer(type, residual), edge);
      const LayerResult want = run_apart(random_layer(type, residual), edge);
      const at::Tensor apart = (got.y.to(at::kFloat) - want.y.to(at::kFloat)).abs();
      EXPECT_LE(apart.max().item<float>(), kEdge.qparams.scale * 1.5f);
      EXPECT_LT(apart.gt(0).to(at::kFloat).mean().item<float>(), 0.01f);
      EXPECT_LT(norm_distance(got.dx, want.dx), bound);
      if (residual) {
        EXPECT_LT(norm_distance(got.dresidual, want.dresidual), bound);
      }
      EXPECT_LT(norm_distance(got.dweight, want.dweight), bound);
      EXPECT_LT(norm_distance(got.dbias, want.dbias), bound);
      EXPECT_LT(norm_distance(got.mean, want.mean), 1e-5);
      EXPECT_LT(norm_distance(got.variance, want.variance), 1e-5);
    }
  }
}

TEST(NormQuantizeOperatorCuda, OneReaderAndAnotherLayoutOfItsGradient) {
  OCTET_NEEDS_GPU();
  const EdgeOnGpu edge(kEdge);
  const NormQuantizer quantizer{.edge = edge.get(), .activation = kernels::kRelu};
  std::vector<at::Tensor> dx;
  for (const bool second : {false, true}) {
    for (const bool dense : {false, true}) {
      const Layer layer = random_layer(at::kHalf, true);
      const Twins twins =
          cuda_norm_quantize({.value = layer.x, .residual = layer.residual}, layer.batch_norm(), quantizer);
      (second ? twins.second : twins.first).backward(dense ? layer.dy.contiguous() : layer.dy);
      dx.push_back(layer.x.grad());
      EXPECT_TRUE(at::equal(dx.back(), dx.front())) << second << dense;
    }
  }
}

TEST(NormQuantizeOperatorCuda, WhatFits) {
  OCTET_NEEDS_GPU();
  const auto made = [](at::ScalarType type, std::vector<int64_t> sizes, at::MemoryFormat format) {
    return at::zeros(sizes, at::TensorOptions(at::kCUDA).dtype(type)).contiguous(format);
  };
  constexpr at::MemoryFormat kLast = at::MemoryFormat::ChannelsLast, kPlanes = at::MemoryFormat::Contiguous;
  const at::Tensor good = made(at::kHalf, {2, 16, 3, 3}, kLast);
  EXPECT_TRUE(norm_quantize_fits({.value = good}));
  EXPECT_TRUE(norm_quantize_fits({.value = good, .residual = good}));
  EXPECT_FALSE(norm_quantize_fits({.value = good.to(at::kFloat)}));
  EXPECT_FALSE(norm_quantize_fits({.value = good.cpu()}));
  EXPECT_FALSE(norm_quantize_fits({.value = made(at::kHalf, {2, 16, 3, 3}, kPlanes)}));
  EXPECT_FALSE(norm_quantize_fits({.value = made(at::kHalf, {2, 12, 3, 3}, kLast)}));
  EXPECT_FALSE(norm_quantize_fits({.value = made(at::kHalf, {1, 16, 1, 1}, kLast)}));
  EXPECT_FALSE(norm_quantize_fits({.value = good, .bias = good}));
  EXPECT_FALSE(norm_quantize_fits({.value = good, .residual = good.to(at::kBFloat16)}));
  EXPECT_FALSE(norm_quantize_fits({.value = good, .residual = made(at::kHalf, {2, 16, 3, 3}, kPlanes)}));
}

/// What a training step leaves.
struct StepOutcome {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients, statistics;
  int fused = 0;           ///< layers whose BatchNorm was part of the quantizer's pass
  int twins = 0;           ///< outputs whose twin was taken
  int functions = 0;       ///< lookups that were part of a layer's pass
  int excites = 0;         ///< products that were part of their quantizer's pass
  int64_t kept_bytes = 0;  ///< of memory, from before the forward pass to its end
};

/// Returns how many gradients the backward pass gives to second outputs of fused layers.
int count_twins(const at::Tensor& loss) {
  std::vector<torch::autograd::Node*> open{loss.grad_fn().get()};
  std::set<torch::autograd::Node*> seen(open.begin(), open.end());
  int twins = 0;
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      twins += edge.input_nr == 1 && edge.function->name().find("CudaNormQuantize") != std::string::npos ? 1 : 0;
      if (seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
    }
  }
  return twins;
}

int64_t bytes_in_use() {
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[kAll].current;
}

enum class StepKind { full_precision, apart, fused, joined, recomputed };

StepOutcome training_step(const Graph& graph, const std::map<std::string, at::Tensor>& state, const Weights& weights,
                          StepKind kind) {
  const SameConvolutions deterministic;
  std::optional<FullPrecision> no_tf32;
  if (kind == StepKind::full_precision) no_tf32.emplace();
  const Weights own = to_device(weights, at::kCUDA);
  QuantizedModel model(prepare(fuse(graph), {}), own, {.recompute = kind == StepKind::recomputed});
  model.load_state(state);
  at::manual_seed(3);
  const Shape& shape = graph.nodes[0].shape;
  const at::Tensor x = at::randn({16, shape.c, shape.h, shape.w}).contiguous(at::MemoryFormat::ChannelsLast).cuda();
  StepOutcome outcome;
  const int64_t before = bytes_in_use();
  {
    const Autocast autocast(at::kCUDA, kind == StepKind::full_precision ? Precision::fp32 : Precision::fp16);
    const bool joins = kind == StepKind::joined || kind == StepKind::recomputed,
               fuses = joins || kind == StepKind::fused;
    WalkHooks hooks = model.quantizing_hooks({.training = true, .batch_norm_training = true, .joins_nodes = joins});
    const auto normalize = hooks.normalize;
    const auto operate = hooks.operate;
    hooks.operate = [&](int node, const std::vector<at::Tensor>& inputs) {
      const at::Tensor output = fuses && operate ? operate(node, inputs) : at::Tensor();
      const bool function = model.prepared().graph.nodes[node].op == Op::lookup;
      if (output.defined()) ++(function ? outcome.functions : outcome.excites);
      return output;
    };
    hooks.normalize = [&](int node, const Unfinished& y, const BatchNormTensors& batch_norm) {
      if (!fuses) return at::Tensor();
      at::Tensor output = normalize(node, y, batch_norm);
      outcome.fused += output.defined() ? 1 : 0;
      return output;
    };
    const at::Tensor logits =
        walk(model.prepared().graph, own, x, {.training = true, .batch_norm_training = true}, hooks);
    outcome.loss = logits.to(at::kFloat).square().mean();
  }
  outcome.twins = count_twins(outcome.loss);
  outcome.kept_bytes = bytes_in_use() - before;
  (outcome.loss * 256).backward();  // so that float16 keeps small gradients
  for (const auto& [name, w] : own) {
    if (w.grad().defined()) outcome.gradients.emplace(name, w.grad());
    if (name.find("running_") != std::string::npos) outcome.statistics.emplace(name, w);
  }
  return outcome;
}

/// The mean over all tensors.
double mean_distance(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double sum = 0;
  for (const auto& [name, tensor] : a) sum += norm_distance(tensor, b.at(name)) / static_cast<double>(a.size());
  return sum;
}

/// float16's error is how far the step with LibTorch's BatchNorm is from float32's.
TEST(NormQuantizeStepCuda, IsTheStepBeforeWithinTheErrorOfFloat16) {
  OCTET_NEEDS_GPU();
  for (const auto& [name, forks] : {std::pair<std::string, int>{"resnet8", 3}, {"resnet18", 8}, {"mobilenet_v2", 10}}) {
    SCOPED_TRACE(name);
    const Graph graph = build_model(test::family(name, 32));
    const Weights weights = test::random_weights(graph, 2);
    const std::map<std::string, at::Tensor> state = test::calibrated(graph, weights, {}).state();
    const StepOutcome exact = training_step(graph, state, weights, StepKind::full_precision);
    const StepOutcome before = training_step(graph, state, weights, StepKind::apart);
    const StepOutcome now = training_step(graph, state, weights, StepKind::fused);
    int layers = 0;
    for (const Node& node : fuse(graph).nodes) layers += node.batch_norm.empty() ? 0 : 1;
    EXPECT_GE(layers, 9);
    EXPECT_EQ(now.fused, layers);
    EXPECT_EQ(now.twins, forks);
    EXPECT_EQ(before.twins, 0);
    const double of_loss = norm_distance(before.loss, exact.loss),
                 of_all = mean_distance(before.gradients, exact.gradients);
    RecordProperty(name + "_gradients_of_float16", std::to_string(of_all));
    RecordProperty(name + "_gradients_now", std::to_string(mean_distance(now.gradients, exact.gradients)));
    EXPECT_LE(norm_distance(now.loss, exact.loss), 2 * of_loss + 1e-3);
    EXPECT_LE(mean_distance(now.gradients, exact.gradients), 1.25 * of_all);
    EXPECT_LE(mean_distance(now.statistics, exact.statistics),
              1.25 * mean_distance(before.statistics, exact.statistics));
    EXPECT_EQ(now.gradients.size(), exact.gradients.size());
    const StepOutcome again = training_step(graph, state, weights, StepKind::fused);
    EXPECT_TRUE(at::equal(again.loss, now.loss)) << "another step of the same";
  }
}

/// Functions in the passes of the layers before them, and products of squeeze-and-excite in their quantizers' passes:
/// both round less than LibTorch's operators, and the tables give the codes of the QAT graph.
TEST(NormQuantizeStepCuda, FunctionsAndProductsAreWithinTheErrorOfFloat16) {
  OCTET_NEEDS_GPU();
  struct Case {
    const char* name;
    int functions, excites, forks;
  };
  for (const Case& c : {Case{"efficientnet_b0", 33, 16, 25}, {"mobilenet_v3_large", 20, 8, 18}}) {
    SCOPED_TRACE(c.name);
    const Graph graph = build_model(test::family(c.name, 32));
    const Weights weights = test::random_weights(graph, 2);
    const std::map<std::string, at::Tensor> state = test::calibrated(graph, weights, {}).state();
    const StepOutcome exact = training_step(graph, state, weights, StepKind::full_precision);
    const StepOutcome before = training_step(graph, state, weights, StepKind::apart);
    const StepOutcome now = training_step(graph, state, weights, StepKind::joined);
    EXPECT_EQ(now.functions, c.functions);
    EXPECT_EQ(now.excites, c.excites);
    EXPECT_EQ(now.twins, c.forks);
    EXPECT_EQ(before.functions + before.excites + before.twins, 0);
    const double of_all = mean_distance(before.gradients, exact.gradients);
    RecordProperty(std::string(c.name) + "_gradients_of_float16", std::to_string(of_all));
    RecordProperty(std::string(c.name) + "_gradients_now",
                   std::to_string(mean_distance(now.gradients, exact.gradients)));
    EXPECT_LE(norm_distance(now.loss, exact.loss), 2 * norm_distance(before.loss, exact.loss) + 1e-3);
    EXPECT_LE(mean_distance(now.gradients, exact.gradients), 1.25 * of_all);
    EXPECT_LE(mean_distance(now.statistics, exact.statistics),
              1.25 * mean_distance(before.statistics, exact.statistics));
    const StepOutcome again = training_step(graph, state, weights, StepKind::joined);
    EXPECT_TRUE(at::equal(again.loss, now.loss)) << "another step of the same";
    for (const auto& [name, gradient] : now.gradients)
      EXPECT_TRUE(at::equal(again.gradients.at(name), gradient)) << name;
  }
}

/// Ranges that a replayed step moved, after a validation has uploaded others, are those of the tables of functions in
/// the first step that does not observe.
TEST(NormQuantizeStepCuda, FunctionsFollowRangesThatReplaysMoved) {
  OCTET_NEEDS_GPU();
  constexpr QuantizedModel::Mode kObserving{.training = true, .batch_norm_training = true, .observe = true};
  constexpr QuantizedModel::Mode kLive{.training = true, .batch_norm_training = true};
  const SameConvolutions deterministic;
  const Graph graph = build_model(test::family("efficientnet_b0", 32));
  const Weights weights = to_device(test::random_weights(graph, 2), at::kCUDA);
  QuantizedModel model(prepare(fuse(graph), {}), weights, {.averaging = 0.5});
  at::manual_seed(3);
  const at::Tensor x = at::randn({16, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast).cuda();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const at::NoGradGuard no_grad;
  const Autocast autocast(at::kCUDA, Precision::fp16);
  StepGraph steps(/*capture=*/true);
  const auto observe = [&] { steps.run(model.launches(kObserving), [&] { model.forward(x, kObserving); }); };
  for (int i = 0; i <= StepGraph::kWarmUps; ++i) observe();
  model.forward(x, kLive);
  model.load_state(model.state());
  const std::map<std::string, at::Tensor> before = model.state();
  for (const Node& node : model.prepared().graph.nodes)
    if (!node.batch_norm.empty()) weights.at(node.batch_norm + ".weight").mul_(2);
  for (int i = 0; i < 3; ++i) observe();
  EXPECT_FALSE(at::equal(model.state().at("edges.scale"), before.at("edges.scale")));
  QuantizedModel fresh(model.prepared(), weights, {.averaging = 0.5});
  fresh.load_state(model.state());
  const at::Tensor want = fresh.forward(x, kLive);
  EXPECT_TRUE(at::equal(model.forward(x, kLive), want));
}

/// What is made again is what was there before, to the last bit.
TEST(NormQuantizeStepCuda, RecomputedStepsAreEqualAndKeepLess) {
  OCTET_NEEDS_GPU();
  for (const auto& [name, share] :
       {std::pair<std::string, double>{"resnet8", 0.95}, {"mobilenet_v2", 0.8}, {"efficientnet_b0", 0.9}}) {
    SCOPED_TRACE(name);
    const Graph graph = build_model(test::family(name, 32));
    const Weights weights = test::random_weights(graph, 2);
    const std::map<std::string, at::Tensor> state = test::calibrated(graph, weights, {}).state();
    const StepOutcome kept = training_step(graph, state, weights, StepKind::joined);
    const StepOutcome again = training_step(graph, state, weights, StepKind::recomputed);
    EXPECT_TRUE(at::equal(again.loss, kept.loss));
    for (const auto& [of, gradient] : kept.gradients) EXPECT_TRUE(at::equal(again.gradients.at(of), gradient)) << of;
    RecordProperty(name + "_kept_bytes", std::to_string(kept.kept_bytes));
    RecordProperty(name + "_kept_bytes_recomputed", std::to_string(again.kept_bytes));
    EXPECT_LT(static_cast<double>(again.kept_bytes), share * static_cast<double>(kept.kept_bytes));
  }
}

}  // namespace
}  // namespace octet
