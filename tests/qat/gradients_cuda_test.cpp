// The training pass of QuantizedModel on the GPU against the CPU's: logits and every tensor's gradient.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "src/model/device.h"
#include "src/quant/fuse.h"
#include "src/quant/prepare.h"
#include "tests/cuda/gpu.h"
#include "tests/qat/networks.h"

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

/// Of the logits and every tensor's gradient, from the CPU's; and where.
std::pair<double, std::string> largest_distance(const Graph& graph, int seed, const QuantizedModel::Mode& mode) {
  const Weights weights = test::random_weights(graph, seed);
  QuantizedModel cpu = test::calibrated(graph, weights, {});
  QuantizedModel gpu(prepare(fuse(graph), {}), to_device(weights, at::kCUDA), {.averaging = 0.1});
  gpu.load_state(cpu.state());
  at::manual_seed(seed);
  const Shape& shape = graph.nodes[0].shape;
  const at::Tensor x = at::randn({4, shape.c, shape.h, shape.w}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor of_cpu = cpu.forward(x, mode), of_gpu = gpu.forward(x.cuda(), mode);
  const Gradients want = gradients(weights, of_cpu), got = gradients(gpu.weights(), of_gpu);
  std::pair<double, std::string> largest{distance(of_gpu.detach().cpu(), of_cpu.detach()), "logits"};
  for (const auto& [name, gradient] : want) {
    const double d = distance(got.at(name), gradient);
    if (!(d <= largest.first)) largest = {d, name};
  }
  return largest;
}

/// Convolutions add in another order on the GPU, so that a value next to a rounding boundary may get the neighbouring
/// code, and everything after it moves: without that gradients differ by 2e-6, with it by up to 0.2 (two kinds of
/// convolution on the CPU do, too). Per value that is a matter of one in some 100,000, hence pictures of 8x8, where
/// half of the seeds and more have none (of eight mostly six, once five); a wrong gradient is wrong with every seed.
TEST(QuantizedModelCuda, ForwardAndEveryGradientAreTheCpus) {
  OCTET_NEEDS_GPU();
  const FullPrecision no_tf32;
  const QuantizedModel::Mode frozen{.training = true}, live{.training = true, .batch_norm_training = true};
  const std::pair<std::string, QuantizedModel::Mode> cases[] = {
      {"resnet8", frozen}, {"resnet8", live}, {"mobilenet_v2", frozen}};
  for (const auto& [name, mode] : cases) {
    const Graph graph = build_model({.name = name, .input = {3, 8, 8}});
    constexpr int kSeeds = 8;
    int equal = 0;
    std::string distances;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const auto [worst, where] = largest_distance(graph, seed, mode);
      distances += std::to_string(worst) + " " + where + "; ";
      equal += worst < 1e-4 ? 1 : 0;
      EXPECT_LT(worst, 0.5) << name << ", seed " << seed << ", " << where;  // with codes that flip, too
    }
    EXPECT_GE(equal, kSeeds / 2) << name << (mode.batch_norm_training ? ": " : " frozen: ") << distances;
  }
}

}  // namespace
}  // namespace octet
