// SPDX-License-Identifier: Apache-2.0
// Global average and linear layer in one kernel against the definitions of both, byte for byte.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/groups/groups.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

struct PoolLinearCase {
  PoolShape pool;
  AvgPoolParams pool_params;
  ConvCase linear;
  std::vector<uint8_t> x;

  PoolLinear layers() const { return {pool, pool_params, linear.shape, linear.params, linear.weights}; }
  std::string describe() const {
    return std::to_string(pool.in_h) + "x" + std::to_string(pool.in_w) + ", " + linear.describe();
  }
};

PoolLinearCase make_case(int channels, int height, int width, int out_c, int images, bool float_output,
                         std::mt19937& random) {
  PoolLinearCase c;
  PoolShape& s = c.pool;
  s = {.channels = channels, .in_h = height, .in_w = width, .in_stride = cuda_channel_stride(channels)};
  s.kernel_h = height, s.kernel_w = width, s.out_h = s.out_w = 1, s.out_stride = s.in_stride;
  c.pool_params.x = random_input(random), c.pool_params.y = random_output(random);
  c.pool_params.multiplier = 2.0f / static_cast<float>(height * width);
  c.linear.images = images;
  Conv2dShape& g = c.linear.shape;
  g = {.in_c = channels, .in_h = 1, .in_w = 1, .in_stride = s.out_stride, .out_c = out_c, .out_h = 1, .out_w = 1};
  g.out_stride = float_output ? out_c : cuda_channel_stride(out_c);
  c.linear.params.x = {c.pool_params.y.zero_point, c.pool_params.y.is_signed};
  c.linear.params.y = random_output(random);
  c.linear.params.y.float_output = float_output;
  const Conv2dParams params = c.linear.params;
  fill_random(c.linear, random);
  c.linear.params = params;
  c.x = random_codes(random, static_cast<size_t>(images) * height * width * s.in_stride);
  return c;
}

std::vector<uint8_t> expected_of(const PoolLinearCase& c) {
  const PoolShape& s = c.pool;
  const size_t image = static_cast<size_t>(s.in_h) * s.in_w * s.in_stride;
  const size_t y_bytes = c.linear.shape.out_stride * (c.linear.params.y.float_output ? sizeof(float) : 1);
  std::vector<uint8_t> y(c.linear.images * y_bytes, kCanary), codes(s.out_stride);
  for (int i = 0; i < c.linear.images; ++i) {
    avg_pool_int8_reference(s, c.pool_params, c.x.data() + i * image, codes.data());
    conv2d_int8_reference(c.linear.shape, c.linear.params, c.linear.weights, codes.data(), nullptr,
                          y.data() + i * y_bytes);
  }
  return y;
}

/// Runs every alternative twice on a poisoned output.
void expect_choices_exact(const PoolLinearCase& c) {
  const PoolLinear layers = c.layers();
  const std::vector<uint8_t> expected = expected_of(c);
  const Stream stream;
  const DeviceBytes packed(cuda_pool_linear_pack(layers), stream), x(c.x, stream);
  const auto choices = cuda_pool_linear_choices(layers, c.linear.images, this_gpu());
  EXPECT_EQ(choices.size(), this_gpu().capability >= 90 ? 3u : 1u) << c.describe();
  for (const CudaPoolLinear& choice : choices) {
    const DeviceBytes y(std::vector<uint8_t>(expected.size(), kCanary), stream, kCanary);
    for (int run = 0; run < 2; ++run) {
      cuda_pool_linear(choice, layers, {c.linear.images, packed.data(), x.data(), y.data()}, stream.get());
    }
    EXPECT_TRUE(y.read(stream) == expected) << choice.name() << " of " << c.describe();
  }
}

TEST(PoolLinearCuda, EndsOfTheZooAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  for (const int images : {1, 2, 7}) {
    for (const int channels : {512, 1024, 1280, 2048}) {
      expect_choices_exact(make_case(channels, 7, 7, 1000, images, true, random));
      if (HasFailure()) return;
    }
  }
}

TEST(PoolLinearCuda, RandomEndsAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(2);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const int channels = random() % 4 ? uniform(random, 5, 300) : uniform(random, 300, 2048);
    expect_choices_exact(make_case(channels, uniform(random, 1, 15), uniform(random, 1, 15), uniform(random, 1, 120),
                                   uniform(random, 1, kPoolLinearImages), random() % 2 == 0, random));
  }
}

// What needs no GPU.
TEST(PoolLinearCuda, OtherEndsHaveNoChoice) {
  std::mt19937 random(3);
  const auto choices = [](const PoolLinearCase& c) {
    return cuda_pool_linear_choices(c.layers(), c.linear.images, kH200).size();
  };
  const PoolLinearCase good = make_case(64, 7, 7, 10, 2, true, random);
  EXPECT_EQ(choices(good), 3u);
  EXPECT_EQ(cuda_pool_linear_choices(good.layers(), 2, kA100).size(), 1u) << "no clusters";
  EXPECT_EQ(cuda_pool_linear_choices(good.layers(), 2, {75, 40}).size(), 0u);
  EXPECT_EQ(cuda_pool_linear_choices(good.layers(), kPoolLinearImages + 1, kH200).size(), 0u);
  EXPECT_EQ(choices(make_case(2049, 7, 7, 10, 1, true, random)), 0u);
  PoolLinearCase c = good;
  c.pool.kernel_h = 6;
  EXPECT_EQ(choices(c), 0u) << "not the whole image";
  c = good, c.pool.in_stride = 72;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.pool_params.y.float_output = true;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.linear.params.has_residual = true;
  EXPECT_EQ(choices(c), 0u);
}

// Computes the linear layer from packed data alone, as the kernel does: a row of weights for each output, in whole
// vectors of 16 channels, and rows of zeros up to a multiple of 8 outputs.
TEST(PoolLinearCuda, PackedDataHoldsTheLinearLayer) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const PoolLinearCase c =
        make_case(uniform(random, 5, 300), 7, 7, uniform(random, 1, 120), 1, seed % 2 == 0, random);
    const std::vector<uint8_t> packed = cuda_pool_linear_pack(c.layers());
    const int in_c = c.linear.shape.in_c, out_c = c.linear.shape.out_c;
    const int rows = (out_c + 7) / 8 * 8, row = (in_c + 15) / 16 * 16;
    ASSERT_EQ(packed.size(), cuda_constants_bytes(rows) + static_cast<size_t>(rows) * row);
    const CudaChannelConstants constants = cuda_channel_constants(packed.data(), rows);
    const int8_t* weight = reinterpret_cast<const int8_t*>(packed.data() + cuda_constants_bytes(rows));
    for (int k = 0; k < rows; ++k) {
      int sum = 0;
      for (int channel = 0; channel < row; ++channel) {
        const bool inside = k < out_c && channel < in_c;
        ASSERT_EQ(weight[k * row + channel], inside ? c.linear.weight[static_cast<size_t>(k) * in_c + channel] : 0)
            << "output " << k << ", channel " << channel << " of " << c.describe();
        sum += weight[k * row + channel];
      }
      if (k >= out_c) continue;
      EXPECT_EQ(constants.init[k], -c.linear.params.x.zero_point * sum);
      EXPECT_EQ(constants.multiplier[k], c.linear.multiplier[k]);
      EXPECT_EQ(constants.bias[k], c.linear.bias[k]);
    }
  }
}

}  // namespace
}  // namespace octet::kernels::testing
