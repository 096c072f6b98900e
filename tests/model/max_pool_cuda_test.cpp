// Max pooling on the GPU: the CPU's values and gradients, of every window, type and number of channels.
#include "src/model/max_pool.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/gpu.h"

namespace octet {
namespace {

struct Case {
  Window window;
  int64_t channels, height, width;
};

Window square(int kernel, int stride, int pad, int dilation = 1) {
  Window w;
  w.kernel_h = w.kernel_w = kernel;
  w.stride_h = w.stride_w = stride;
  w.dilation_h = w.dilation_w = dilation;
  w.pad = even_padding(pad, pad);
  return w;
}

/// Packs of eight channels and single ones, windows that overlap, leave gaps, reach over the edge on one side alone.
std::vector<Case> cases() {
  Window uneven = square(3, 2, 0), flat = square(2, 1, 0);
  uneven.pad = {0, 0, 1, 1};
  flat.kernel_w = 5;
  flat.stride_h = 3;
  flat.pad = even_padding(1, 2);
  return {{square(3, 2, 1), 64, 28, 30}, {square(3, 2, 1), 5, 7, 9},
          {square(2, 2, 0), 24, 9, 8},   {square(3, 1, 1, 2), 8, 11, 12},
          {square(1, 3, 0), 16, 7, 10},  {square(13, 1, 6), 8, 15, 15},
          {uneven, 40, 12, 13},          {flat, 3, 10, 11}};
}

struct Pooled {
  at::Tensor y, dx;
};

Pooled run(const at::Tensor& values, const at::Tensor& gradients, const Window& window) {
  const at::Tensor x = values.detach().requires_grad_(true);
  const at::Tensor y = max_pool(x, window);
  y.backward(gradients);
  return {y.detach().to(at::kCPU, at::kFloat), x.grad().to(at::kCPU, at::kFloat)};
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
      const auto there = [&](const at::Tensor& t) {
        return t.to(at::kCUDA, type).contiguous(at::MemoryFormat::ChannelsLast);
      };
      const Pooled got = run(there(x), there(dy), one.window);
      EXPECT_TRUE(got.y.equal(want.y)) << type << ", " << one.channels << " channels";
      EXPECT_TRUE(got.dx.equal(want.dx)) << type << ", " << one.channels << " channels";
      const c10::NoGradGuard no_grad;
      EXPECT_TRUE(max_pool(there(x), one.window).to(at::kCPU, at::kFloat).equal(want.y)) << type << ", no gradients";
    }
  }
}

TEST(MaxPoolCuda, NaNIsNotHidden) {
  OCTET_NEEDS_GPU();
  at::Tensor x = at::zeros({1, 8, 4, 4});
  x[0][3][1][1] = NAN;
  x[0][5].fill_(-INFINITY);
  const at::Tensor y = max_pool(x.to(at::kCUDA).contiguous(at::MemoryFormat::ChannelsLast), square(2, 2, 0)).cpu();
  EXPECT_TRUE(std::isnan(y[0][3][0][0].item<float>()));
  EXPECT_EQ(y[0][3][1][1].item<float>(), 0);
  EXPECT_EQ(y[0][5][0][0].item<float>(), -INFINITY);
}

}  // namespace
}  // namespace octet
