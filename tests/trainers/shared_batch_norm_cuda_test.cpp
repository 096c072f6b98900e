// BatchNorm over the shares of a batch on the GPU: with one share it is LibTorch's own.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/model/shared_batch_norm.h"
#include "tests/cuda/gpu.h"

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

TEST(SharedBatchNormCuda, OneShareIsTheWhole) {
  OCTET_NEEDS_GPU();
  const GatherShares alone = [](const at::Tensor& mine) { return mine.unsqueeze(0); };
  for (const auto& [type, bound] : {std::pair{at::kFloat, 5e-6}, std::pair{at::kHalf, 1e-3}}) {
    for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const Result shared = run(type, format, &alone), whole = run(type, format, nullptr);
      expect_close(shared.y, whole.y, bound, "y");
      expect_close(shared.dx, whole.dx, bound, "dx");
      expect_close(shared.d_weight, whole.d_weight, bound, "gradient of weight");
      expect_close(shared.d_bias, whole.d_bias, bound, "gradient of bias");
      expect_close(shared.mean, whole.mean, bound, "running mean");
      expect_close(shared.variance, whole.variance, bound, "running variance");
    }
  }
}

}  // namespace
}  // namespace octet
