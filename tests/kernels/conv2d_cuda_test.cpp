// SPDX-License-Identifier: Apache-2.0
// Convolutions on the GPU: every alternative gives the reference's bytes.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/base/error.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"

namespace octet::kernels::testing {
namespace {

TEST(Conv2dCuda, RandomConvolutionsAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(41);
  for (const int images : {1, 3, 7}) {
    for (int i = 0; i < 150 && !HasFailure(); ++i) {
      ConvCase c = random_case(random);
      c.images = images;
      vary_for_cuda(c, random);
      expect_every_choice_exact(c);
    }
  }
}

/// A convolution of this shape with random parameters and signs.
void expect_shape_exact(Conv2dShape shape, std::mt19937& random, const std::string& variant) {
  ConvCase c;
  c.shape = shape;
  infer_output(c.shape, random);
  use_cuda_strides(c);
  c.images = 1 + random() % 7;
  Conv2dParams& p = c.params;
  p.x.zero_point = random() % 256, p.y.zero_point = random() % 256;
  if (random() & 1) p.y.clamp_min = p.y.zero_point;
  if (random() % 3 == 0) p.y.clamp_max = std::max<int>(p.y.zero_point, 255 - random() % 100);
  if (random() % 3 == 0) {  // a ReLU that nothing bounds above: codes 0..255, or 0..127 of signed ones
    p.y.zero_point = p.y.clamp_min = random() & 1 ? 0 : 128;
    p.y.clamp_max = 255;
  }
  vary_for_cuda(c, random);
  const float too_extreme[] = {0x1p-90f, 0x1p9f};  // for rounding in steps
  if (random() % 6 == 0) c.multiplier[random() % c.multiplier.size()] = too_extreme[random() & 1];
  const auto choices = cuda_conv2d_choices(c.shape, p, c.weights, c.images, this_gpu());
  EXPECT_EQ(choices.front().name.substr(0, variant.size()), variant) << c.describe();
  expect_every_choice_exact(c);
}

TEST(Conv2dCuda, DepthwiseOfSquareWindowsIsExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(44);
  for (int i = 0; i < 160 && !HasFailure(); ++i) {
    Conv2dShape g;
    const int window = i % 4 < 2 ? 3 : 5;
    g.in_c = g.out_c = g.groups = 5 + random() % 120;
    g.in_h = 1 + random() % 35, g.in_w = 1 + random() % 35;
    g.kernel_h = g.kernel_w = window;
    g.stride_h = g.stride_w = 1 + i % 2;
    g.pad_h = g.in_h < window ? window / 2 : random() % (window + 1);
    g.pad_w = g.in_w < window ? window / 2 : random() % (window + 1);
    expect_shape_exact(g, random, window == 3 ? "dp4a_depthwise_3x3" : "dp4a_depthwise_5x5");
  }
}

TEST(Conv2dCuda, FirstLayersAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(45);
  for (int i = 0; i < 160 && !HasFailure(); ++i) {
    Conv2dShape g;
    g.in_c = 1 + random() % 4, g.out_c = 5 + random() % 140;
    g.kernel_h = i & 1 ? 3 : 1 + random() % 7, g.kernel_w = i & 1 ? 3 : 1 + random() % 7;
    g.in_h = 7 + random() % 60, g.in_w = 7 + random() % 60;
    g.stride_h = 1 + random() % 4, g.stride_w = random() & 1 ? g.stride_h : 1 + random() % 4;
    g.dilation_h = random() % 4 == 0 && g.kernel_h <= 3 ? 2 : 1;
    g.dilation_w = random() % 4 == 0 && g.kernel_w <= 3 ? 1 + random() % 3 : 1;
    g.pad_h = random() % 4, g.pad_w = random() % 4;
    expect_shape_exact(g, random, "mma_image");
  }
}

// For the kernel of each window an image with 15 x 15 tiles, more than there are multiprocessors, so that a block
// computes the channels of two warps.
TEST(Conv2dCuda, WideFirstLayersAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(46);
  expect_shape_exact({.in_c = 3, .in_h = 230, .in_w = 230, .out_c = 70, .kernel_h = 3, .kernel_w = 3, .pad_h = 1},
                     random, "mma_image_12");
  expect_shape_exact({.in_c = 3, .in_h = 230, .in_w = 230, .out_c = 40, .kernel_h = 5, .kernel_w = 5, .pad_w = 2},
                     random, "mma_image_28");
  expect_shape_exact({.in_c = 3,
                      .in_h = 460,
                      .in_w = 460,
                      .out_c = 40,
                      .kernel_h = 7,
                      .kernel_w = 7,
                      .stride_h = 2,
                      .stride_w = 2,
                      .pad_h = 3,
                      .pad_w = 3},
                     random, "mma_image_52");
}

TEST(Conv2dCuda, GroupsAreExact) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(46);
  for (int i = 0; i < 80 && !HasFailure(); ++i) {
    Conv2dShape g;
    g.groups = 2 + random() % 20;
    g.in_c = g.groups * (1 + random() % 12), g.out_c = g.groups * (1 + random() % 12);
    g.kernel_h = 1 + random() % 5, g.kernel_w = 1 + random() % 5;
    g.in_h = 5 + random() % 12, g.in_w = 5 + random() % 12;
    g.stride_h = g.stride_w = 1 + random() % 2;
    g.pad_h = random() % 3, g.pad_w = random() % 3;
    expect_shape_exact(g, random, "");
  }
}

TEST(Conv2dCuda, DirectIsTheLastChoiceOfEverything) {
  std::mt19937 random(42);
  for (int i = 0; i < 50; ++i) {
    const ConvCase c = random_case(random);
    EXPECT_EQ(cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, kH200).back().name, "direct") << c.describe();
  }
}

TEST(Conv2dCuda, RefusesWhatCannotBe) {
  std::mt19937 random(43);
  ConvCase c = random_case(random);
  c.shape.in_h += 100;
  EXPECT_THROW(cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, kH200), Error);
  c.shape.in_h -= 100;
  c.params.x.zero_point = 256;
  EXPECT_THROW(cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, kH200), Error);
  c.params.x.zero_point = 0;
  EXPECT_THROW(cuda_conv2d_pack({.variant = -1, .name = "none"}, c.shape, c.params, c.weights), Error);
  EXPECT_THROW(cuda_conv2d_pack({.variant = 1 << 20, .name = "none"}, c.shape, c.params, c.weights), Error);
}

}  // namespace
}  // namespace octet::kernels::testing
