// SPDX-License-Identifier: Apache-2.0
// The training pass of QuantizedModel on the GPU compared with the CPU's: logits and every tensor's gradient.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "src/quant/plan.h"
#include "src/train/model/device.h"
#include "tests/cuda/gpu.h"
#include "tests/train/networks.h"

namespace octet {
namespace {

using Gradients = std::map<std::string, at::Tensor>;

Gradients gradients(const Weights& of, const at::Tensor& logits) {
  logits.square().mean().backward();
  Gradients all;
  for (const auto& [name, w] : of)
    if (w.requires_grad()) all.emplace(name, w.grad().cpu().clone());
  return all;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

using Outputs = std::vector<at::Tensor>;

/// Returns every node's output for x, and then the logits.
Outputs outputs_of(QuantizedModel& model, const at::Tensor& x, const QuantizedModel::Mode& mode) {
  Outputs all;
  const at::Tensor logits = model.forward(x, mode, [&](int, const at::Tensor& y) { all.push_back(y.detach().cpu()); });
  all.push_back(logits);
  return all;
}

/// Returns whether all codes are the same. Another code changes a value by at least a 255th of the range.
bool same_codes(const Outputs& a, const Outputs& b) {
  for (size_t i = 0; i + 1 < a.size(); ++i) {
    if ((a[i] - b[i]).abs().max().item<double>() > 1e-3 * b[i].abs().max().item<double>()) return false;
  }
  return true;
}

struct Comparison {
  bool same_codes;
  double worst;  ///< distance of the logits or of a tensor's gradient from the CPU's
  std::string where;
};

Comparison compare(const Graph& graph, int seed, const QuantizedModel::Mode& mode) {
  const Weights weights = test::random_weights(graph, seed);
  QuantizedModel cpu = test::calibrated(graph, weights, {});
  QuantizedModel gpu(prepare(fuse(graph), {}), to_device(weights, at::kCUDA), {.averaging = 0.1});
  gpu.load_state(cpu.state());
  at::manual_seed(seed);
  const Shape& shape = graph.nodes[0].shape;
  const at::Tensor x = at::randn({4, shape.c, shape.h, shape.w}).contiguous(at::MemoryFormat::ChannelsLast);
  const Outputs of_cpu = outputs_of(cpu, x, mode), of_gpu = outputs_of(gpu, x.cuda(), mode);
  const Gradients want = gradients(weights, of_cpu.back()), got = gradients(gpu.weights(), of_gpu.back());
  Comparison found{same_codes(of_gpu, of_cpu), distance(of_gpu.back().detach().cpu(), of_cpu.back().detach()),
                   "logits"};
  for (const auto& [name, gradient] : want) {
    const double d = distance(got.at(name), gradient);
    if (!(d <= found.worst)) found.worst = d, found.where = name;
  }
  return found;
}

/// Convolutions add in another order on the GPU, so that a value next to a rounding boundary may get the neighbouring
/// code, and everything after it moves: without that gradients differ by 2e-6, with it by up to 0.2 (two kinds of
/// convolution on the CPU do, too). Per value that is a matter of one in some 100,000, hence images of 8x8; seeds
/// where it happens are only held to a bound that a missing gradient breaks.
TEST(QuantizedModelCuda, ForwardAndEveryGradientAreTheCpus) {
  OCTET_NEEDS_GPU();
  const FullPrecision no_tf32;
  const QuantizedModel::Mode frozen{.training = true}, live{.training = true, .batch_norm_training = true};
  const std::pair<std::string, QuantizedModel::Mode> cases[] = {
      {"resnet8", frozen}, {"resnet8", live}, {"mobilenet_v2", frozen}};
  for (const auto& [name, mode] : cases) {
    const Graph graph = build_model({.name = name, .input = {3, 8, 8}});
    int same = 0;
    for (int seed = 1; seed <= 8; ++seed) {
      const Comparison c = compare(graph, seed, mode);
      same += c.same_codes ? 1 : 0;
      EXPECT_LT(c.worst, c.same_codes ? 1e-4 : 0.5) << name << ", seed " << seed << ", " << c.where;
    }
    EXPECT_GE(same, 3) << name << (mode.batch_norm_training ? "" : " frozen") << ": codes flip with every seed";
  }
}

}  // namespace
}  // namespace octet
