// SPDX-License-Identifier: Apache-2.0
// A first layer and its max-pool in one kernel against the definitions of both, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
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

struct PooledCase {
  ConvCase conv;
  PoolShape pool;
  MaxPoolParams pool_params;

  ConvMaxPool layers() const { return {conv.shape, conv.params, conv.weights, pool, pool_params}; }
  std::string describe() const {
    return conv.describe() + "; pooled to " + std::to_string(pool.out_h) + "x" + std::to_string(pool.out_w) + ", pad " +
           std::to_string(pool.pad_h) + "x" + std::to_string(pool.pad_w) + ", clamp " +
           std::to_string(pool_params.clamp_min) + " " + std::to_string(pool_params.clamp_max);
  }
};

struct Layers {
  int images = 1, in_c = 3, in_h = 0, in_w = 0, out_c = 64, kernel = 7, conv_pad = 3, pool_pad = 1;
  int behind = 1;  ///< rows and columns by which the pool's image is padded behind its last
  bool uneven = false;
};

PooledCase make_case(const Layers& from, std::mt19937& random) {
  PooledCase c;
  ConvCase& conv = c.conv;
  Conv2dShape& g = conv.shape;
  conv.images = from.images;
  g = {.in_c = from.in_c, .in_h = from.in_h, .in_w = from.in_w, .out_c = from.out_c};
  g.kernel_h = g.kernel_w = from.kernel;
  g.stride_h = g.stride_w = 2;
  g.pad_h = g.pad_w = from.conv_pad;
  from.uneven ? infer_output(g, random) : infer_output(g);
  conv.params.x.zero_point = one_of(random, {0, 0, 128, 255, 77});
  conv.params.y.zero_point = one_of(random, {0, 128, 255, 31});
  conv.params.y.clamp_min = random() % 2 ? conv.params.y.zero_point : 0;
  conv.params.y.clamp_max = random() % 2 ? 255 : std::max(240, conv.params.y.clamp_min);
  use_cuda_strides(conv);
  vary_for_cuda(conv, random);
  conv.lookup.reset();

  const CodeOutput& y = conv.params.y;
  c.pool_params = {y.is_signed, y.is_signed ? -128 : 0, y.is_signed ? 127 : 255};
  if (random() % 3 == 0) c.pool_params.clamp_min += static_cast<int>(random() % 100);
  if (random() % 3 == 0) c.pool_params.clamp_max -= static_cast<int>(random() % 100);
  const auto pooled = [&](int in) { return (in + from.pool_pad + from.behind - 3) / 2 + 1; };
  c.pool = {.channels = g.out_c,
            .in_h = g.out_h,
            .in_w = g.out_w,
            .in_stride = g.out_stride,
            .out_h = pooled(g.out_h),
            .out_w = pooled(g.out_w),
            .out_stride = g.out_stride,
            .kernel_h = 3,
            .kernel_w = 3,
            .stride_h = 2,
            .stride_w = 2,
            .pad_h = from.pool_pad,
            .pad_w = from.pool_pad};
  return c;
}

size_t pooled_bytes(const PooledCase& c) {
  return static_cast<size_t>(c.pool.out_h) * c.pool.out_w * c.pool.out_stride;
}

std::vector<uint8_t> expected_of(const PooledCase& c) {
  const std::vector<uint8_t> inner = run_reference(c.conv);
  const size_t inner_image = inner.size() / c.conv.images;
  std::vector<uint8_t> y(c.conv.images * pooled_bytes(c), kCanary);
  for (int image = 0; image < c.conv.images; ++image) {
    max_pool_int8_reference(c.pool, c.pool_params, inner.data() + image * inner_image,
                            y.data() + image * pooled_bytes(c));
  }
  return y;
}

/// Runs every alternative twice on a poisoned output, and returns how many there are.
int expect_exact(const PooledCase& c) {
  const ConvMaxPool layers = c.layers();
  const std::vector<uint8_t> expected = expected_of(c);
  const Stream stream;
  const DeviceBytes packed(cuda_conv_max_pool_pack(layers), stream), x(c.conv.x, stream);
  const std::vector<CudaConvMaxPool> choices = cuda_conv_max_pool_choices(layers);
  for (const CudaConvMaxPool& choice : choices) {
    const DeviceBytes y(std::vector<uint8_t>(expected.size(), kCanary), stream, kCanary);
    for (int run = 0; run < 2; ++run)
      cuda_conv_max_pool(choice, layers, {c.conv.images, packed.data(), x.data(), y.data()}, stream.get());
    ConvCase as_conv = c.conv;  // says which lanes a kernel may write
    as_conv.shape.out_stride = c.pool.out_stride;
    testing::expect_exact(as_conv, choice.name + " of " + c.describe(), y.read(stream), expected);
    if (::testing::Test::HasFailure()) break;
  }
  return static_cast<int>(choices.size());
}

TEST(ConvMaxPoolCuda, FirstLayersOfTheZooAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  for (const Layers& layers : {Layers{.in_h = 224, .in_w = 224},  // ResNet
                               Layers{.in_h = 224, .in_w = 224, .kernel = 3, .conv_pad = 0, .pool_pad = 0, .behind = 0},
                               Layers{.in_h = 224, .in_w = 224, .out_c = 24, .kernel = 3, .conv_pad = 1}}) {
    EXPECT_GE(expect_exact(make_case(layers, random)), 5);
  }
}

// What compute-sanitizer runs.
TEST(ConvMaxPoolCuda, SmallImagesAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(6);
  for (const int side : {8, 34}) {
    expect_exact(make_case({.images = 2, .in_h = side, .in_w = side + 1, .out_c = 40}, random));
    expect_exact(make_case({.in_h = side + 3, .in_w = side, .out_c = 20, .kernel = 3, .conv_pad = 1}, random));
  }
}

TEST(ConvMaxPoolCuda, AnySizeIsExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(2);
  int run = 0;
  for (int i = 0; i < 250 && !HasFailure(); ++i) {
    Layers layers;
    layers.images = one_of(random, {1, 2, 7});
    layers.in_c = one_of(random, {1, 2, 3, 3, 4});
    layers.out_c = one_of(random, {1, 8, 20, 24, 32, 33, 40, 64, 65, 100});
    layers.kernel = one_of(random, {1, 2, 3, 4, 5, 6, 7});
    layers.conv_pad = static_cast<int>(random() % (layers.kernel + 1));
    layers.pool_pad = static_cast<int>(random() % 2);
    layers.behind = static_cast<int>(random() % 2);
    layers.uneven = random() % 2;
    layers.in_h = one_of(random, {8, 9, 13, 31, 34, 57, 60, 66, 93});
    layers.in_w = one_of(random, {8, 9, 13, 31, 34, 57, 60, 66, 93, 121, 130});
    run += expect_exact(make_case(layers, random));
  }
  EXPECT_GT(run, 600);
}

// Blocks iterate over many tiles here; codes are extreme at both ends.
TEST(ConvMaxPoolCuda, LargeBatchesAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(3);
  for (int i = 0; i < 4; ++i) {
    PooledCase c = make_case({.images = 128, .in_h = 61, .in_w = 59, .out_c = i % 2 ? 64 : 16}, random);
    if (i < 2) {
      const ConvCase signs = c.conv;
      fill_random(c.conv, random, {.extreme = true});
      c.conv.params = signs.params;
      c.conv.bind();
    }
    expect_exact(c);
  }
}

TEST(ConvMaxPoolCuda, OffersItselfForFirstLayersThatHalveTheImage) {
  std::mt19937 random(4);
  const Layers resnet{.in_h = 40, .in_w = 40};
  const auto choices = [&](auto&& change) {
    ConvMaxPool layers = make_case(resnet, random).layers();
    change(layers);
    return cuda_conv_max_pool_choices(layers).size();
  };
  EXPECT_EQ(choices([](ConvMaxPool&) {}), 5u);  // 10 rows: none of 14
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv.in_c = 5, l.conv.in_stride = 16; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv.in_stride = 16; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv.stride_w = 1; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv.dilation_h = 2; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv.kernel_h = 8; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv.groups = 3; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv_params.has_residual = true; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.conv_params.y.float_output = true; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.pool.kernel_h = l.pool.kernel_w = 2; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.pool.stride_h = 1; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.pool.out_stride = 20; }), 0u);
  EXPECT_EQ(choices([](ConvMaxPool& l) { l.pool.out_w += 2; }), 0u) << "a window without a pixel";
}

// The weights of each word of a window, negated if the multiplier was negative, are in the lane that multiplies by
// them.
TEST(ConvMaxPoolCuda, PackedDataHoldsTheConvolution) {
  std::mt19937 random(5);
  for (const int kernel : {2, 3, 5, 7}) {
    const PooledCase c = make_case({.in_h = 20, .in_w = 20, .out_c = 40, .kernel = kernel, .conv_pad = 1}, random);
    const std::vector<uint8_t> packed = cuda_conv_max_pool_pack(c.layers());
    const int channels = 64, rows = kernel <= 3 ? 3 : 7;
    const CudaChannelConstants constants = cuda_channel_constants(packed.data(), channels);
    const int8_t* weight = reinterpret_cast<const int8_t*>(packed.data() + cuda_constants_bytes(channels));
    ASSERT_EQ(packed.size(), cuda_constants_bytes(channels) + channels * rows * 32);
    for (int k = 0; k < channels; ++k) {
      const bool negative = k < c.conv.shape.out_c && c.conv.multiplier[k] < 0;
      int sum = 0;
      for (int r = 0; r < rows; ++r) {
        for (int s = 0; s < 8; ++s) {
          const int mma = k % 8 / 2, lane = (k % 32 / 8 * 2 + k % 2) * 4 + s % 4;
          const int8_t* word =
              weight + (((k / 32 * rows + r) * 2 + mma / 2) * 32 + lane) * 16 + (mma % 2 * 2 + s / 4) * 4;
          for (int channel = 0; channel < 4; ++channel) {
            const bool inside = k < c.conv.shape.out_c && r < kernel && s < kernel && channel < 3;
            const int own = inside ? c.conv.weight[((k * kernel + r) * kernel + s) * 3 + channel] : 0;
            ASSERT_EQ(word[channel], negative ? -own : own) << k << " " << r << " " << s;
            sum += word[channel];
          }
        }
      }
      if (k >= c.conv.shape.out_c) continue;
      EXPECT_EQ(constants.init[k], -c.conv.params.x.zero_point * sum);
      EXPECT_EQ(constants.multiplier[k], std::abs(c.conv.multiplier[k]));
      EXPECT_EQ(constants.bias[k], c.conv.bias[k]);
    }
  }
}

}  // namespace
}  // namespace octet::kernels::testing
