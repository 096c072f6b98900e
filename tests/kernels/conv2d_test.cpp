// SPDX-License-Identifier: Apache-2.0
// Every CPU path against the reference, byte for byte, padding lanes of the output included.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "tests/kernels/conv2d_random.h"

namespace octet::kernels::testing {
namespace {

void expect_equal_on_all_paths(const ConvCase& c, const std::string& what) {
  const std::vector<uint8_t> expected = run_reference(c);
  for (CpuIsa isa : available_cpu_isas()) {
    for (Guard guard : {Guard::before, Guard::behind}) {
      const std::vector<uint8_t> actual = run_cpu(c, isa, guard);
      ASSERT_EQ(actual.size(), expected.size());
      size_t differing = 0, first = 0;
      for (size_t i = expected.size(); i-- > 0;) {
        if (actual[i] != expected[i]) ++differing, first = i;
      }
      ASSERT_EQ(differing, 0u) << what << ", " << CpuConv2d::create(c.shape, c.params, c.weights, isa)->name() << ": "
                               << c.describe() << "; first differing byte " << first << " of " << expected.size()
                               << ": " << int{actual[first]} << " instead of " << int{expected[first]};
    }
  }
}

/// OCTET_TEST_SEED repeats a failure.
unsigned first_seed() {
  const char* seed = std::getenv("OCTET_TEST_SEED");
  return seed ? static_cast<unsigned>(std::atol(seed)) : 1u;
}

/// Returns how many of `count` cases to try: where instructions are emulated (tests/x86_emulator), a tenth.
unsigned cases(unsigned count) { return std::getenv("OCTET_TEST_EMULATED") != nullptr ? count / 10 : count; }

TEST(Conv2d, RandomShapesEqualTheReference) {
  for (unsigned seed = first_seed(); seed < first_seed() + cases(1500); ++seed) {
    std::mt19937 random(seed);
    expect_equal_on_all_paths(random_case(random), "OCTET_TEST_SEED=" + std::to_string(seed));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Lanes behind the channels keep their bytes: only codes are looked up, each of them once.
TEST(Conv2d, CodesAreLookedUp) {
  for (unsigned seed = first_seed(); seed < first_seed() + cases(700); ++seed) {
    std::mt19937 random(seed);
    ConvCase c = random_case(random);
    if (c.params.y.float_output) continue;
    draw_lookup(c, random);
    expect_equal_on_all_paths(c, "OCTET_TEST_SEED=" + std::to_string(seed));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// As many channels as fill AMX's tiles, whose last rows lie at the end of the tensor.
TEST(Conv2d, WideShapesEqualTheReference) {
  for (unsigned seed = first_seed(); seed < first_seed() + cases(150); ++seed) {
    std::mt19937 random(seed);
    ConvCase c = random_case(random);
    const auto draw = [&](int low, int high) { return low + static_cast<int>(random() % (high - low + 1)); };
    Conv2dShape& g = c.shape;
    g.groups = draw(1, 3) / 2 + 1;
    g.in_c = g.groups * draw(30, 150);
    g.out_c = g.groups * draw(16, 80);
    g.in_stride = draw(0, 1) ? g.in_c : cpu_channel_stride(g.in_c);
    g.out_stride = g.residual_stride = cpu_channel_stride(g.out_c);
    fill_random(c, random);
    if (draw(0, 2) == 0 && !c.params.y.float_output) draw_lookup(c, random);
    expect_equal_on_all_paths(c, "OCTET_TEST_SEED=" + std::to_string(seed));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

ConvCase named_case(Conv2dShape shape, int images = 1) {
  ConvCase c;
  c.shape = shape;
  infer_output(c.shape);
  c.shape.in_stride = cpu_channel_stride(shape.in_c);
  c.shape.out_stride = c.shape.residual_stride = cpu_channel_stride(shape.out_c);
  c.images = images;
  return c;
}

// Which convolutions AMX's tiles are for: others are faster on AVX-512, and their names say so.
TEST(Conv2d, TilesAreForManyProductsAndChannels) {
  if (!cpu_isa_available(CpuIsa::amx)) GTEST_SKIP() << "no AMX";
  std::mt19937 random(3);
  const auto name = [&](const Conv2dShape& shape) {
    ConvCase c = named_case(shape);
    fill_random(c, random);
    return CpuConv2d::create(c.shape, c.params, c.weights, CpuIsa::amx)->name();
  };
  EXPECT_EQ(name({.in_c = 65, .in_h = 4, .in_w = 4, .out_c = 16}), "conv1x1_amx_32x32");
  EXPECT_EQ(name({.in_c = 8, .in_h = 4, .in_w = 4, .out_c = 64, .kernel_h = 3, .kernel_w = 3}),
            "conv3x3_amx_32x32_copied");
  EXPECT_EQ(name({.in_c = 64, .in_h = 4, .in_w = 4, .out_c = 64}), "conv1x1_avx512_vnni_14x32");
  EXPECT_EQ(name({.in_c = 65, .in_h = 4, .in_w = 4, .out_c = 15}), "conv1x1_avx512_vnni_14x32");
  EXPECT_EQ(name({.in_c = 65, .in_h = 1, .in_w = 1, .out_c = 64}), "conv1x1_avx512_vnni_6x64");
}

// The shapes that networks are made of, on the strides of the engine.
TEST(Conv2d, LayersOfNetworksEqualTheReference) {
  std::mt19937 random(7);
  const Conv2dShape shapes[] = {
      {.in_c = 3,
       .in_h = 33,
       .in_w = 35,
       .out_c = 64,
       .kernel_h = 7,
       .kernel_w = 7,
       .stride_h = 2,
       .stride_w = 2,
       .pad_h = 3,
       .pad_w = 3},
      {.in_c = 3, .in_h = 32, .in_w = 32, .out_c = 16, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1},
      {.in_c = 1, .in_h = 28, .in_w = 28, .out_c = 32, .kernel_h = 5, .kernel_w = 5, .pad_h = 2, .pad_w = 2},
      {.in_c = 16, .in_h = 32, .in_w = 32, .out_c = 16, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1},
      {.in_c = 256, .in_h = 7, .in_w = 7, .out_c = 256, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1},
      {.in_c = 512, .in_h = 14, .in_w = 14, .out_c = 128, .stride_h = 2, .stride_w = 2},
      {.in_c = 64, .in_h = 17, .in_w = 9, .out_c = 256},
      {.in_c = 24, .in_h = 14, .in_w = 14, .out_c = 144},
      {.in_c = 96,
       .in_h = 15,
       .in_w = 15,
       .out_c = 96,
       .kernel_h = 3,
       .kernel_w = 3,
       .stride_h = 2,
       .stride_w = 2,
       .pad_h = 1,
       .pad_w = 1,
       .groups = 96},
      {.in_c = 144,
       .in_h = 9,
       .in_w = 12,
       .out_c = 144,
       .kernel_h = 3,
       .kernel_w = 3,
       .pad_h = 1,
       .pad_w = 1,
       .groups = 144},
      {.in_c = 32,
       .in_h = 112,
       .in_w = 20,
       .out_c = 32,
       .kernel_h = 3,
       .kernel_w = 3,
       .pad_h = 1,
       .pad_w = 1,
       .groups = 32},
  };
  for (const Conv2dShape& shape : shapes) {
    for (bool residual : {false, true}) {
      ConvCase c = named_case(shape, 2);
      c.params.has_residual = residual;
      c.params.x.zero_point = 117;
      c.params.y.zero_point = 31;
      c.params.y.clamp_min = 31;
      c.params.residual.zero_point = 90;
      fill_random(c, random);
      expect_equal_on_all_paths(c, "layer");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Weights beyond the share of L2 that they may take go block by block, not panel by panel.
TEST(Conv2d, CodesOfLargeWeightsAreLookedUp) {
  std::mt19937 random(9);
  ConvCase c = named_case(
      {.in_c = 200, .in_h = 7, .in_w = 7, .out_c = 300, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1}, 2);
  fill_random(c, random);
  draw_lookup(c, random);
  expect_equal_on_all_paths(c, "large weights");
}

TEST(Conv2d, LinearLayersWriteFloatLogits) {
  std::mt19937 random(11);
  for (int images : {1, 2, 5, 8, 17}) {
    ConvCase c = named_case({.in_c = 2048, .in_h = 1, .in_w = 1, .out_c = 1000}, images);
    c.params.y.float_output = true;
    fill_random(c, random);
    expect_equal_on_all_paths(c, "linear");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// 255 * 127 * 4608 is beyond float's 2^24 and int16 pairs by far: nothing may saturate, and float(acc) must round once.
TEST(Conv2d, LargestAccumulators) {
  std::mt19937 random(13);
  for (int zero_point : {0, 255}) {
    ConvCase c = named_case(
        {.in_c = 512, .in_h = 4, .in_w = 4, .out_c = 40, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1});
    c.params.x.zero_point = zero_point;
    c.params.y.float_output = true;  // shows every bit of the accumulator that float keeps
    fill_random(c, random, {.extreme = true});
    expect_equal_on_all_paths(c, "extreme");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// The clamp is done in float before the conversion: values beyond int32 and infinities must land on the bounds, and
// NaN, here infinity minus infinity, on the lower one.
TEST(Conv2d, HugeValuesClampLikeTheReference) {
  std::mt19937 random(17);
  for (const Conv2dShape& shape : {Conv2dShape{.in_c = 20, .in_h = 5, .in_w = 5, .out_c = 37},
                                   Conv2dShape{.in_c = 90, .in_h = 5, .in_w = 5, .out_c = 90, .groups = 90}}) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (float residual_multiplier : {0.0f, 3e38f, infinity, -infinity}) {
      ConvCase c = named_case(shape);
      c.params.y.zero_point = 3;
      c.params.y.clamp_min = 2;
      c.params.y.clamp_max = 250;
      c.params.has_residual = residual_multiplier != 0;
      fill_random(c, random);
      c.params.residual_multiplier = residual_multiplier;
      const float values[] = {1e28f, -1e28f, 3e38f, -3e38f, 1e-38f, 2147483648.0f};
      for (int k = 0; k < c.shape.out_c; ++k) c.multiplier[k] = values[k % 6];
      expect_equal_on_all_paths(c, "huge");
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace octet::kernels::testing
