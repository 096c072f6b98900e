// SPDX-License-Identifier: Apache-2.0
// BatchNorm over the shares of a batch on the GPU: with one share it is LibTorch's own, with two what the CPU makes of
// them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "src/train/model/model.h"
#include "tests/cuda/gpu.h"
#include "tests/error_of.h"

namespace octet {
namespace {

struct Result {
  at::Tensor y, dx, d_weight, d_bias, mean, variance;
};

Result run(at::ScalarType type, at::MemoryFormat format, const GatherShares* gather) {
  const at::TensorOptions floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  at::manual_seed(4);
  at::Tensor x = (at::randn({16, 32, 7, 9}, floats) * 2 + 1).to(type).contiguous(format).set_requires_grad(true);
  const at::Tensor dy = at::randn({16, 32, 7, 9}, floats).to(type).contiguous(format);
  const BatchNormTensors t{(at::rand({32}, floats) + 0.5).set_requires_grad(true),
                           at::randn({32}, floats).set_requires_grad(true), at::zeros({32}, floats),
                           at::ones({32}, floats)};
  const at::Tensor y = gather == nullptr ? at::batch_norm(x, t.weight, t.bias, t.running_mean, t.running_var, true, 0.1,
                                                          1e-5, /*cudnn_enabled=*/true)
                                         : shared_batch_norm(x, t, 0.1, 1e-5, *gather);
  y.backward(dy);
  return {y.detach(), x.grad(), t.weight.grad(), t.bias.grad(), t.running_mean, t.running_var};
}

void expect_close(const at::Tensor& a, const at::Tensor& b, double bound, const char* what) {
  EXPECT_EQ(a.scalar_type(), b.scalar_type()) << what;
  const at::Tensor x = a.to(at::kFloat), y = b.to(at::kFloat);
  EXPECT_LT(((x - y).norm() / y.norm()).item<double>(), bound) << what;
}

void expect_close(const Result& a, const Result& b, double bound) {
  expect_close(a.y, b.y, bound, "y");
  expect_close(a.dx, b.dx, bound, "dx");
  expect_close(a.d_weight, b.d_weight, bound, "gradient of weight");
  expect_close(a.d_bias, b.d_bias, bound, "gradient of bias");
  expect_close(a.mean, b.mean, bound, "running mean");
  expect_close(a.variance, b.variance, bound, "running variance");
}

TEST(SharedBatchNormCuda, OneShareIsTheWhole) {
  OCTET_NEEDS_GPU();
  const GatherShares alone = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  for (const auto& [type, bound] : {std::pair{at::kFloat, 5e-6}, std::pair{at::kHalf, 1e-3}}) {
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Result shared = run(type, format, &alone), whole = run(type, format, nullptr);
      expect_close(shared, whole, bound);
    }
  }
}

/// A share whose neighbour sent `other`, [2, C], both times.
Result run_beside(const at::Tensor& other, at::Device device, at::MemoryFormat format) {
  at::manual_seed(4);  // on the CPU: the same numbers for both devices
  at::Tensor x = (at::randn({8, 40, 7, 9}) * 2 + 30).to(device).contiguous(format).set_requires_grad(true);
  const at::Tensor dy = at::randn({8, 40, 7, 9}).to(device).contiguous(format);
  const auto values = [&](double least) { return (at::rand({40}) + least).to(device); };
  const BatchNormTensors t{values(0.5).set_requires_grad(true), values(-0.5).set_requires_grad(true), values(0),
                           values(0.5)};
  const GatherShares gather = [&](const at::Tensor& mine) { return at::stack({mine, other.to(device)}); };
  const at::Tensor y = shared_batch_norm(x, t, 0.1, 1e-5, gather);
  y.backward(dy);
  const auto on_cpu = [](const at::Tensor& tensor) { return tensor.detach().cpu(); };
  return {on_cpu(y),
          on_cpu(x.grad()),
          on_cpu(t.weight.grad()),
          on_cpu(t.bias.grad()),
          on_cpu(t.running_mean),
          on_cpu(t.running_var)};
}

TEST(SharedBatchNormCuda, IsTheCpus) {
  OCTET_NEEDS_GPU();
  at::manual_seed(9);
  const at::Tensor other = at::stack({at::randn({40}) + 29, at::rand({40}) + 3});
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const Result gpu = run_beside(other, at::kCUDA, format), cpu = run_beside(other, at::kCPU, format);
    constexpr double kBound = 5e-6;  // means of 30 in float
    expect_close(gpu, cpu, kBound);
  }
}

/// What is left of a batch in more micro-batches than images.
TEST(SharedBatchNormCuda, AnEmptyShareIsRefused) {
  OCTET_NEEDS_GPU();
  const GatherShares alone = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  const at::TensorOptions floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
  const at::Tensor channels = at::ones({32}, floats);
  const BatchNormTensors t{channels, channels, channels.clone(), channels.clone()};
  const auto norm = [&](int64_t images) {
    return error_of([&] { shared_batch_norm(at::ones({images, 32, 1, 1}, floats), t, 0.1, 1e-5, alone); });
  };
  EXPECT_NE(norm(0).find("BatchNorm needs more than one value of a channel"), std::string::npos) << norm(0);
  EXPECT_EQ(norm(1), norm(0));
  EXPECT_EQ(norm(2), "");
}

}  // namespace
}  // namespace octet
