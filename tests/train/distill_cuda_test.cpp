// SPDX-License-Identifier: Apache-2.0
// Distillation on a GPU, where steps are recorded and replayed: two runs give the same bits, and the CPU's loss.
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/train/repair/learned_codes.h"
#include "tests/cuda/gpu.h"
#include "tests/train/rounded_networks.h"

namespace octet {
namespace {

struct Result {
  Weights weights;
  double before = 0, after = 0;
};

Result taught(at::Device device, bool tf32) {
  const Graph graph = test::residual_network("relu");
  QuantizedModel model = test::calibrated(graph, test::random_weights(graph, 3), uniform_bits(8, 3));
  for (const auto& [name, weight] : model.weights()) at::Tensor(weight).set_data(weight.detach().to(device));
  Weights floats = model.weights();
  for (auto& [name, tensor] : floats) tensor = tensor.detach().clone();
  const at::Tensor x = test::input_images(graph.nodes[0].shape, 32).to(device);
  const auto loss = [&] {
    const c10::NoGradGuard no_grad;
    return distillation_loss(model.forward(x, {}), walk(model.prepared().graph, floats, x, {}), 1).item<double>();
  };
  Result result{.before = loss()};
  int64_t batch = 0;
  distill(model, floats, [&] { return x.narrow(0, 8 * (batch++ % 4), 8); },
          {.steps = 100, .rate = 1e-2, .temperature = 1, .tf32 = tf32});
  result.after = loss();
  for (const auto& [name, tensor] : model.weights()) result.weights.emplace(name, tensor.cpu());
  return result;
}

TEST(DistillCuda, TwoRunsGiveTheSameBitsAndTheCpusLoss) {
  OCTET_NEEDS_GPU();
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  const Result cpu = taught(at::kCPU, false);
  EXPECT_LT(cpu.after, 0.7 * cpu.before);
  std::vector<Weights> weights;
  for (const bool tf32 : {false, true}) {
    SCOPED_TRACE(tf32);
    const Result gpu = taught(at::kCUDA, tf32), again = taught(at::kCUDA, tf32);
    for (const auto& [name, tensor] : gpu.weights) EXPECT_TRUE(tensor.equal(again.weights.at(name))) << name;
    EXPECT_NEAR(gpu.before, cpu.before, 0.01 * cpu.before);
    EXPECT_LT(gpu.after, 0.7 * gpu.before);
    weights.push_back(gpu.weights);
  }
  EXPECT_TRUE(std::any_of(weights[0].begin(), weights[0].end(), [&](const auto& entry) {
    return !entry.second.equal(weights[1].at(entry.first));
  })) << "no product was rounded";
}

}  // namespace
}  // namespace octet
