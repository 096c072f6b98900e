// SPDX-License-Identifier: Apache-2.0
// Functions in the passes of BatchNorm, products of squeeze-and-excite in those of their quantizer and means of images,
// each as one operator beside LibTorch's operators and the quantizers behind them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "src/train/model/operators.h"
#include "src/train/qat/fake_quantize.h"
#include "src/train/qat/joined_operators.h"
#include "tests/cuda/gpu.h"

namespace octet {
namespace {

constexpr QParams kNormalCodes{0.02f, 100, 0, 255}, kFunctionCodes{0.012f, 24, 0, 255};

double joined_distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return ((x - y).norm() / y.norm()).item<double>();
}

at::Tensor drawn(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes, at::TensorOptions(at::kCUDA).dtype(at::kFloat))
      .to(type)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

/// The tensors of a layer with BatchNorm, SiLU, and two readers: a convolution and the mean of an image.
struct SiluLayer {
  at::Tensor x, weight, bias, mean, variance, dy, dmean;

  explicit SiluLayer(at::ScalarType type) {
    at::manual_seed(9);
    const at::TensorOptions floats = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
    x = (drawn({8, 48, 14, 14}, type) * 2 + 1).set_requires_grad(true);
    weight = (at::rand({48}, floats) + 0.5).set_requires_grad(true);
    bias = at::randn({48}, floats).set_requires_grad(true);
    mean = at::zeros({48}, floats);
    variance = at::ones({48}, floats);
    dy = drawn({8, 48, 14, 14}, type);
    dmean = drawn({8, 48, 1, 1}, type) * 50;
  }
  void backward(const at::Tensor& y, const at::Tensor& means) const {
    ((y.to(at::kFloat) * dy).sum() + (means.to(at::kFloat) * dmean).sum()).backward();
  }
};

TEST(JoinedOperatorsCuda, BatchNormWithAFunctionIsTheOperatorsApart) {
  OCTET_NEEDS_GPU();
  const Node lookup{.op = Op::lookup, .function = {.kind = FunctionKind::silu}};
  DeviceTable<kernels::FunctionTable> table(1, at::kCUDA);
  table.write({function_table(lookup, kNormalCodes, kFunctionCodes)});
  DeviceTable<kernels::EdgeQuantizer> edge(1, at::kCUDA);
  edge.write({{.qparams = kNormalCodes, .affine = 1}});
  for (const auto& [type, bound] : {std::pair{at::kHalf, 2e-2}, std::pair{at::kBFloat16, 5e-2}}) {
    const SiluLayer got(type), want(type);
    const Twins twins = cuda_norm_quantize({.value = got.x}, {got.weight, got.bias, got.mean, got.variance},
                                           {.edge = edge.row(0), .function = table.row(0)});
    got.backward(twins.first, image_means(twins.second));
    const at::Tensor normal = at::batch_norm(want.x, want.weight, want.bias, want.mean, want.variance, true,
                                             kBatchNormMomentum, kBatchNormEpsilon, /*cudnn_enabled=*/true);
    const at::Tensor rounded = cuda_fake_quantize(normal, {.device = &edge.row(0)->qparams});
    const at::Tensor y = cuda_fake_quantize(at::silu(rounded), {.qparams = kFunctionCodes});
    want.backward(y, y.mean({2, 3}, /*keepdim=*/true));
    const at::Tensor apart = (twins.first.detach().to(at::kFloat) - y.detach().to(at::kFloat)).abs();
    EXPECT_LE(apart.max().item<float>(), 1.2f * kNormalCodes.scale + 1.6f * kFunctionCodes.scale);
    EXPECT_LT(joined_distance(twins.first, y), bound);
    EXPECT_LT(joined_distance(got.x.grad(), want.x.grad()), bound);
    EXPECT_LT(joined_distance(got.weight.grad(), want.weight.grad()), bound);
    EXPECT_LT(joined_distance(got.bias.grad(), want.bias.grad()), bound);
    EXPECT_TRUE(at::equal(twins.again(), twins.first));
  }
}

TEST(JoinedOperatorsCuda, AProductWithItsQuantizerIsTheOperatorsApart) {
  OCTET_NEEDS_GPU();
  DeviceTable<QParams> qparams(1, at::kCUDA);
  qparams.write({kNormalCodes});
  for (const auto& [type, bound] : {std::pair{at::kHalf, 2e-3}, std::pair{at::kBFloat16, 2e-2}}) {
    at::manual_seed(3);
    const at::Tensor x = drawn({8, 48, 14, 14}, type).set_requires_grad(true),
                     factor = drawn({8, 48, 1, 1}, type).set_requires_grad(true), dy = drawn({8, 48, 14, 14}, type);
    ASSERT_TRUE(excite_fits(x, factor));
    EXPECT_FALSE(excite_fits(factor, x));
    EXPECT_FALSE(excite_fits(x.to(at::kFloat), factor.to(at::kFloat)));
    const at::Tensor y = cuda_excite_quantize(x, factor, {.device = qparams.row(0)});
    y.backward(dy);
    const at::Tensor dx = x.grad(), dfactor = factor.grad();
    x.mutable_grad().reset();
    factor.mutable_grad().reset();
    const at::Tensor want = cuda_fake_quantize(x * factor, {.device = qparams.row(0)});
    want.backward(dy);
    EXPECT_TRUE(at::equal(y, want));
    EXPECT_LT(joined_distance(dx, x.grad()), bound);
    EXPECT_LT(joined_distance(dfactor, factor.grad()), 4 * bound);
  }
}

TEST(JoinedOperatorsCuda, MeansOfImagesAreLibTorchs) {
  OCTET_NEEDS_GPU();
  at::manual_seed(3);
  const at::Tensor x = drawn({8, 48, 14, 14}, at::kHalf).set_requires_grad(true), dy = drawn({8, 48, 1, 1}, at::kHalf);
  const at::Tensor y = image_means(x);
  y.backward(dy);
  const at::Tensor dx = x.grad();
  x.mutable_grad().reset();
  const at::Tensor want = x.mean({2, 3}, /*keepdim=*/true);
  want.backward(dy);
  EXPECT_LT(joined_distance(y, want), 1e-3);
  EXPECT_LT(joined_distance(dx, x.grad()), 1e-3);
}

}  // namespace
}  // namespace octet
