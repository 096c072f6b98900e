// SPDX-License-Identifier: Apache-2.0
// Max pooling on the GPU gives the CPU's values and gradients, for every window, type and number of channels.
#include "src/train/model/operators.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "src/net/zoo.h"
#include "tests/cuda/gpu.h"

namespace octet {
namespace {

struct Case {
  Window window;
  int64_t channels, height, width;
};

/// Returns packs of eight channels and single ones; windows that overlap, leave gaps, or are padded on one side alone.
std::vector<Case> cases() {
  Window uneven = square(3, 2, 0), flat = square(2, 1, 0);
  uneven.pad = {0, 0, 1, 1};
  flat.kernel_w = 5;
  flat.stride_h = 3;
  flat.pad = even_padding(1, 2);
  return {{square(3, 2, 1), 64, 28, 30}, {square(3, 2, 1), 5, 7, 9},
          {square(2, 2, 0), 24, 9, 8},   {square(3, 1, 1), 8, 11, 12},
          {square(1, 3, 0), 16, 7, 10},  {square(13, 1, 6), 8, 15, 15},
          {uneven, 40, 12, 13},          {flat, 3, 10, 11}};
}

struct Pooled {
  at::Tensor y, dx;
  bool by_our_kernel;
};

Pooled run(const at::Tensor& values, const at::Tensor& gradients, const Window& window) {
  const at::Tensor x = values.detach().requires_grad_(true);
  const at::Tensor y = max_pool(x, window);
  const bool ours = y.grad_fn()->name().find("CudaMaxPool") != std::string::npos;
  y.backward(gradients);
  return {y.detach().to(at::kCPU, at::kFloat), x.grad().to(at::kCPU, at::kFloat), ours};
}

at::Tensor on_gpu(const at::Tensor& values, at::ScalarType type = at::kFloat) {
  return values.to(at::kCUDA, type).contiguous(at::MemoryFormat::ChannelsLast);
}

TEST(MaxPoolCuda, GivesTheCpusValuesAndGradients) {
  OCTET_NEEDS_GPU();
  at::manual_seed(6);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const Case& one : cases()) {
      // Few different values, so that many windows have the largest one twice; gradients whose sums are exact in any
      // order.
      const at::Tensor x = at::randint(-4, 4, {3, one.channels, one.height, one.width}, at::kFloat);
      const at::Tensor shape = max_pool(x, one.window);
      const at::Tensor dy = at::randint(-3, 4, shape.sizes(), at::kFloat);
      const Pooled want = run(x, dy, one.window);
      const Pooled got = run(on_gpu(x, type), on_gpu(dy, type), one.window);
      EXPECT_TRUE(got.by_our_kernel && !want.by_our_kernel) << type << ", " << one.channels << " channels";
      EXPECT_TRUE(got.y.equal(want.y)) << type << ", " << one.channels << " channels";
      EXPECT_TRUE(got.dx.equal(want.dx)) << type << ", " << one.channels << " channels";
      const c10::NoGradGuard no_grad;
      EXPECT_TRUE(max_pool(on_gpu(x, type), one.window).to(at::kCPU, at::kFloat).equal(want.y))
          << type << ", no gradients";
    }
  }
}

/// A window's places are counted in a byte, and a row of channels lies together.
TEST(MaxPoolCuda, LibTorchHasTheRest) {
  OCTET_NEEDS_GPU();
  at::manual_seed(7);
  const at::Tensor x = at::randn({2, 8, 20, 20});
  const at::Tensor few = max_pool(x, square(3, 2, 1)), wide = max_pool(x, square(17, 1, 0));
  EXPECT_FALSE(run(on_gpu(x), on_gpu(at::ones_like(wide)), square(17, 1, 0)).by_our_kernel);
  EXPECT_FALSE(run(x.to(at::kCUDA), at::ones_like(few).to(at::kCUDA), square(3, 2, 1)).by_our_kernel);
  EXPECT_TRUE(run(on_gpu(x), on_gpu(at::ones_like(few)), square(3, 2, 1)).by_our_kernel);
}

/// LibTorch's rule (aten/src/ATen/native/cpu/MaxPoolKernel.cpp): a place is chosen if its value is larger or NaN, so
/// the last NaN of a window, and its first place where all are -inf.
TEST(MaxPoolCuda, NaNAndInfinityAreTheCpus) {
  OCTET_NEEDS_GPU();
  at::manual_seed(8);
  for (const int64_t channels : {8, 5}) {
    for (const Window& window : {square(2, 2, 0), square(3, 2, 1), square(3, 1, 1)}) {
      at::Tensor x = at::randint(-4, 4, {2, channels, 9, 10}, at::kFloat);
      x[0][3][1][1] = NAN;
      for (const int column : {4, 5}) x[0][3][4][column] = NAN;  // two of a window
      x[0][4].fill_(-INFINITY);
      x[1][0][2].fill_(-INFINITY);
      x[1][1][3][3] = INFINITY;
      x[1][2].fill_(NAN);
      const at::Tensor dy = at::randint(1, 5, max_pool(x, window).sizes(), at::kFloat);
      const Pooled want = run(x, dy, window), got = run(on_gpu(x), on_gpu(dy), window);
      EXPECT_TRUE(got.by_our_kernel);
      EXPECT_TRUE(at::allclose(got.y, want.y, 0, 0, /*equal_nan=*/true)) << channels << " channels";
      EXPECT_TRUE(got.dx.equal(want.dx)) << channels << " channels";
      EXPECT_TRUE(std::isnan(got.y[1][2][0][0].item<float>()));
      EXPECT_EQ(got.y[0][4][0][0].item<float>(), -INFINITY);
    }
  }
}

}  // namespace
}  // namespace octet
