// SPDX-License-Identifier: Apache-2.0
// Every tile of the wgmma family, even if it would not be chosen, against the reference, byte for byte; and what its
// kernels rely on, checked without a GPU. Packed data is tested in conv2d_cuda_wgmma_pack_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "kernels/conv/cuda/rounding.h"
#include "kernels/conv/cuda/wgmma/wgmma.h"
#include "src/base/error.h"
#include "src/cuda/device.h"
#include "tests/cuda/gpu.h"
#include "tests/error_of.h"
#include "tests/kernels/conv2d_cuda.h"

namespace octet::kernels::testing {
namespace {

void expect_every_tile_exact(const ConvCase& c) {
  ASSERT_TRUE(wgmma_supports(c.shape, c.params, c.weights, c.images)) << c.describe();
  std::mt19937 random(static_cast<unsigned>(c.shape.in_c + c.shape.in_h));
  ConvCase sparse = c;
  sparse.bind();
  keep_two_of_four(sparse, random);
  const std::vector<uint8_t> expected = run_reference(c), expected_sparse = run_reference(sparse);
  for (int tile = 0; tile < static_cast<int>(kWgmmaTiles.size()); ++tile) {
    if (!wgmma_fits(kWgmmaTiles[tile], c.shape, c.images)) continue;
    const CudaConv2d conv = wgmma_choice(tile);
    const bool dense = !kWgmmaTiles[tile].sparse;
    if (dense) expect_exact(c, conv.name, run_family(c, cuda_wgmma_family(), conv), expected);
    expect_exact(sparse, conv.name, run_family(sparse, cuda_wgmma_family(), conv), expected_sparse);
    if (::testing::Test::HasFailure()) return;
  }
}

/// Random codes, constants and signs for a shape.
ConvCase case_of(Conv2dShape shape, int images, bool residual, std::mt19937& random) {
  ConvCase c;
  c.shape = shape;
  infer_output(c.shape);
  c.images = images;
  c.params.has_residual = residual;
  c.params.x.zero_point = random() & 1 ? random() % 256 : 0;
  c.params.y.zero_point = random() % 256;
  c.params.residual.zero_point = random() & 1 ? random() % 256 : 0;
  if (random() & 1) c.params.y.clamp_min = c.params.y.zero_point;
  vary_for_cuda(c, random);
  use_cuda_strides(c);
  const ConvCase signs = c;
  fill_random(c, random, {.extreme = random() % 4 == 0});
  c.params = signs.params;
  c.bind();
  return c;
}

TEST(Conv2dCudaWgmma, OneTileIsExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(1);
  for (const int channels : {16, 32, 64, 128, 256}) {
    const Conv2dShape shape{.in_c = channels, .in_h = 8, .in_w = 8, .out_c = 64};
    expect_every_tile_exact(case_of(shape, 1, false, random));
    if (HasFailure()) return;
  }
}

// The shared memory of a kernel is set before each launch: what one thread sets must hold for its own launch.
TEST(Conv2dCudaWgmma, TwoThreadsLaunchOneTileForTwoShapesAtOnce) {
  OCTET_NEEDS_HOPPER();
  const CudaConvFamily often{nullptr, cuda_wgmma_family().pack, nullptr,
                             [](const CudaConv2d& conv, const Conv2dShape& shape, const Conv2dParams& params,
                                const CudaConv2dData& data, CudaStream stream) {
                               for (int i = 0; i < 500; ++i)
                                 cuda_wgmma_family().launch(conv, shape, params, data, stream);
                             }};
  std::mt19937 random(5);
  const ConvCase cases[] = {case_of({.in_c = 64, .in_h = 8, .in_w = 8, .out_c = 64}, 1, false, random),
                            case_of({.in_c = 512, .in_h = 8, .in_w = 8, .out_c = 64}, 1, false, random)};
  int tiles = 0;
  for (int tile = 0; tile < static_cast<int>(kWgmmaTiles.size()); ++tile) {
    const auto shared = [&](const ConvCase& c) {
      return wgmma_fits(kWgmmaTiles[tile], c.shape, c.images)
                 ? WgmmaPlan(kWgmmaTiles[tile], c.shape, c.images, false).shared_bytes()
                 : 0;
    };
    if (kWgmmaTiles[tile].sparse || shared(cases[0]) * shared(cases[1]) == 0 || shared(cases[0]) == shared(cases[1]))
      continue;
    ++tiles;
    std::vector<std::thread> threads;
    for (const ConvCase& c : cases) {
      threads.emplace_back([&often, &c, tile] {
        const std::string failed = error_of([&] {
          const CudaConv2d conv = wgmma_choice(tile);
          expect_exact(c, conv.name, run_family(c, often, conv), run_reference(c));
        });
        EXPECT_EQ(failed, "");
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GT(tiles, 0) << "no tile has two sizes of shared memory for these shapes";
}

TEST(Conv2dCudaWgmma, WindowsAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(2);
  for (const int stride : {1, 2}) {
    for (const int pad : {0, 1, 2}) {
      const Conv2dShape shape{.in_c = 64,
                              .in_h = 15,
                              .in_w = 13,
                              .out_c = 96,
                              .kernel_h = 3,
                              .kernel_w = 3,
                              .stride_h = stride,
                              .stride_w = stride,
                              .pad_h = pad,
                              .pad_w = pad};
      expect_every_tile_exact(case_of(shape, 2, false, random));
      if (HasFailure()) return;
    }
  }
}

TEST(Conv2dCudaWgmma, LayersOfResNetsAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(3);
  const auto layer = [](int in_c, int size, int out_c, int kernel, int stride) {
    return Conv2dShape{.in_c = in_c,
                       .in_h = size,
                       .in_w = size,
                       .out_c = out_c,
                       .kernel_h = kernel,
                       .kernel_w = kernel,
                       .stride_h = stride,
                       .stride_w = stride,
                       .pad_h = kernel / 2,
                       .pad_w = kernel / 2};
  };
  for (const Conv2dShape& shape :
       {layer(64, 28, 64, 3, 1), layer(64, 28, 256, 1, 1), layer(256, 28, 128, 1, 2), layer(128, 14, 128, 3, 2),
        layer(256, 14, 256, 3, 1), layer(512, 7, 512, 3, 1), layer(512, 7, 2048, 1, 1), layer(2048, 7, 512, 1, 1)}) {
    for (const int images : {1, 2, 7}) {
      expect_every_tile_exact(case_of(shape, images, shape.out_c > shape.in_c, random));
      if (HasFailure()) return;
    }
  }
}

// Blocks iterate over tiles: each group of warps computes two tiles and more, in a ring of fewer stages than a tile
// takes.
TEST(Conv2dCudaWgmma, TilesAfterTilesAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(4);
  for (const bool residual : {false, true}) {
    const Conv2dShape shape{
        .in_c = 16, .in_h = 100, .in_w = 96, .out_c = 72, .kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1};
    expect_every_tile_exact(case_of(shape, 8, residual, random));
    if (HasFailure()) return;
  }
}

// Memory is the limit and the residual larger than the L2 cache: it comes after a tile's products are done.
TEST(Conv2dCudaWgmma, ResidualsThatComeLateAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(6);
  expect_every_tile_exact(case_of({.in_c = 16, .in_h = 256, .in_w = 256, .out_c = 256}, 4, true, random));
}

TEST(Conv2dCudaWgmma, EveryTileIsExactOnRandomConvolutions) {
  OCTET_NEEDS_HOPPER();
  for (unsigned seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ConvCase c = random_ungrouped_case(random);
    if (!c.params.y.float_output && wgmma_supports(c.shape, c.params, c.weights, c.images)) expect_every_tile_exact(c);
  }
}

TEST(Conv2dCudaWgmma, LargestAccumulatorsAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(5);
  for (const int zero_point : {0, 255}) {
    expect_every_tile_exact(largest_sums_case(zero_point, /*float_output=*/false, random));
  }
}

// Rounding as finish_word() does it, for every sixteenth of a code far beyond the range of codes, which includes ties,
// and for the neighbouring floats.
TEST(Conv2dCudaWgmma, StepsAreRoundCode) {
  int run = 0;
  for (CodeOutput out : {CodeOutput{.clamp_min = 0, .clamp_max = 255},
                         {.clamp_min = -128, .clamp_max = 127, .is_signed = true},
                         {.clamp_min = 0, .clamp_max = 127, .is_signed = true},
                         {.clamp_min = 0, .clamp_max = 200},  // ReLU6 below the highest code
                         {.clamp_min = -128, .clamp_max = 100, .is_signed = true}}) {
    for (out.zero_point = out.clamp_min; out.zero_point <= out.clamp_max; ++out.zero_point) {
      if (!StepRounding::can(out)) continue;
      ++run;
      const StepRounding round(out);
      const auto expect_code = [&](float t) {
        const int32_t steps = std::clamp(round(t * kStepScale), 0, std::min(round.max_steps, 255));
        const uint8_t code = static_cast<uint8_t>(steps ^ round.flip);
        ASSERT_EQ(code, static_cast<uint8_t>(round_code(t, out.zero_point, out.clamp_min, out.clamp_max)))
            << t << ", zero point " << out.zero_point;
      };
      for (int i = -16 * 400; i <= 16 * 400; ++i) {
        const float t = static_cast<float>(i) / 16;
        for (const float value : {t, std::nextafter(t, -1e9f), std::nextafter(t, 1e9f)}) expect_code(value);
      }
      for (const float t : {0x1p60f, -0x1p60f, 0x1p-120f, -0x1p-120f, -0.0f, 16777217.0f, -8388608.5f}) expect_code(t);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(run, 256 + 256 + 128 + 101 + 115);  // every other zero point for the last two
  EXPECT_FALSE(StepRounding::can({.zero_point = 3, .clamp_min = 3}));
  EXPECT_FALSE(StepRounding::can({.zero_point = 201, .clamp_max = 200}));
  EXPECT_FALSE(StepRounding::can({.clamp_min = -127, .clamp_max = 127, .is_signed = true}));
}

// Scaling by 2^-16 changes no bit of t, for scales down to 2^-80, biases of any size, and residuals.
TEST(Conv2dCudaWgmma, ScaledSumsAreTheSums) {
  std::mt19937 random(11);
  const auto of_magnitude = [&](int low, int high) {
    const float mantissa = static_cast<float>(random() % (1 << 24)) * (random() & 1 ? 0x1p-23f : -0x1p-23f);
    return std::ldexp(mantissa, low + static_cast<int>(random() % static_cast<unsigned>(high - low)));
  };
  for (int i = 0; i < 300000; ++i) {
    const bool tiny = i % 2 != 0;
    const float multiplier = std::ldexp(static_cast<float>(1 + random() % 3), tiny ? -80 : -12) * (tiny ? 1 : 1.37f);
    const float bias = i % 3 == 0 ? of_magnitude(-149, -100) : of_magnitude(-20, 8);
    const float residual_multiplier = i % 5 == 0 ? 0.5f : of_magnitude(-8, 4);
    if (!can_scale_steps(multiplier) || !can_scale_steps(residual_multiplier)) continue;
    const int32_t acc = static_cast<int32_t>(random()) >> (random() % 31);
    const int code = static_cast<int>(random() % 256), zero = i % 7 == 0 ? 0 : static_cast<int>(random() % 256);
    const bool is_signed = i % 11 == 0;
    const int first = is_signed ? -128 : 0;
    const float t = std::fma(static_cast<float>(code + first - (zero + first)), residual_multiplier,
                             rescale(acc, multiplier, bias));
    const ResidualSteps steps(zero + first, is_signed, residual_multiplier);
    const float value = static_cast<float>(code) * 0x1p-133f - steps.zero;
    const float scaled = std::fma(value, steps.multiplier, rescale(acc, multiplier * kStepScale, scaled_bias(bias)));
    if (std::fabs(t) >= 0x1p-110f) {
      ASSERT_EQ(scaled, t * kStepScale) << acc << " * " << multiplier << " + " << bias << ", " << residual_multiplier;
    } else {
      ASSERT_LE(std::fabs(scaled), 0x1p-126f) << "neither is more than 0";
    }
  }
  EXPECT_TRUE(ResidualSteps(0, false, 0.5f).plain());
  EXPECT_FALSE(ResidualSteps(-128, true, 0.5f).plain()) << "codes are to be turned into uint8";
  EXPECT_FALSE(ResidualSteps(1, false, 0.5f).plain());
  EXPECT_FALSE(can_scale_steps(0x1p-90f));
  EXPECT_FALSE(can_scale_steps(0x1p20f));
  EXPECT_TRUE(can_scale_steps(0));
}

// One weight that breaks the pattern, wherever it is: sparse kernels are not offered, and refuse to be packed by hand.
TEST(Conv2dCudaWgmma, OneWeightTooManyIsDense) {
  for (const int in_c : {64, 66, 67}) {
    std::mt19937 random(in_c);
    ConvCase c =
        case_of({.in_c = in_c, .in_h = 8, .in_w = 8, .out_c = 24, .kernel_h = 3, .kernel_w = 3}, 1, false, random);
    const auto sparse_names = [&] {
      std::set<std::string> names;
      for (const CudaConv2d& conv : cuda_conv2d_choices(c.shape, c.params, c.weights, c.images, kH200))
        if (conv.name.starts_with("wgmma_sp_")) names.insert(conv.name);
      return names;
    };
    std::fill(c.weight.begin(), c.weight.end(), int8_t{0});
    EXPECT_FALSE(sparse_names().empty()) << "all of them 0";
    const int rows = static_cast<int>(c.weight.size()) / in_c;
    for (const int row : {0, 1, rows / 2, rows - 1}) {
      const int fours = in_c / 4 + (in_c % 4 == 3);  // behind them two channels at most
      for (int four = 0; four < fours; ++four) {
        int8_t* w = &c.weight[static_cast<size_t>(row) * in_c + four * 4];
        const int last = std::min(4, in_c - four * 4) - 1;
        w[0] = 1, w[last] = -1;
        ASSERT_FALSE(sparse_names().empty());
        w[1] = 1;
        ASSERT_TRUE(sparse_names().empty()) << "row " << row << ", four " << four;
        w[0] = w[1] = w[last] = 0;
      }
    }
    c.weight[0] = c.weight[1] = c.weight[2] = 1;
    for (int tile = 0; tile < static_cast<int>(kWgmmaTiles.size()); ++tile) {
      if (!kWgmmaTiles[tile].sparse) continue;
      EXPECT_THROW(wgmma_pack(wgmma_choice(tile), c.shape, c.params, c.weights), Error);
    }
  }
}

TEST(Conv2dCudaWgmma, TilesFitTheMultiprocessor) {
  std::mt19937 random(9);
  for (int i = 0; i < 200; ++i) {
    const ConvCase c = random_ungrouped_case(random);
    for (const WgmmaTile& tile : kWgmmaTiles) {
      if (!wgmma_fits(tile, c.shape, c.images)) continue;
      const WgmmaPlan plan(tile, c.shape, c.images, c.params.has_residual);
      EXPECT_LE(plan.shared_bytes(), 227 * 1024);
      EXPECT_GE(plan.stages, 2);
      EXPECT_EQ(plan.held_bytes % 1024, 0) << "stages begin where swizzles repeat";
      EXPECT_EQ(plan.stage_bytes % 1024, 0);
      EXPECT_LE(plan.stages, kWgmmaMaxStages);
      EXPECT_LE(plan.ends, kWgmmaMaxEnds);
      EXPECT_EQ(plan.ends, tile.groups << plan.ends_log);
    }
  }
  for (const WgmmaTile& tile : kWgmmaTiles) {
    EXPECT_EQ(tile.group_m % 64, 0);
    EXPECT_LE(tile.group_m * tile.group_n() / 128 + 64, tile.registers()) << "more sums than registers";
    EXPECT_TRUE(!tile.sparse || (tile.shifted() && tile.block_n == 64));
    EXPECT_LE(128 * (tile.groups * tile.registers() + tile.copier_registers()), 65536);
    std::set<int> rows;
    for (int channel = 0; channel < tile.block_n; ++channel) rows.insert(wgmma_weight_row(channel));
    EXPECT_EQ(static_cast<int>(rows.size()), tile.block_n);
    EXPECT_EQ(*rows.rbegin(), tile.block_n - 1);
  }
}

TEST(Conv2dCudaWgmma, BordersFallIntoFewClasses) {
  EXPECT_EQ(BorderClasses(56, 56, 3, 1, 1, 1).taps, (std::vector<uint32_t>{6, 7, 3}));
  EXPECT_EQ(BorderClasses(56, 28, 3, 2, 1, 1).taps, (std::vector<uint32_t>{6, 7}));
  EXPECT_EQ(BorderClasses(1, 1, 3, 1, 1, 1).taps, (std::vector<uint32_t>{2}));
  EXPECT_EQ(BorderClasses(7, 7, 1, 1, 0, 1).taps.size(), 1u);
}

TEST(Conv2dCudaWgmma, OnlyComputeCapability90HasIt) {
  const Conv2dShape shape{
      .in_c = 64, .in_h = 56, .in_w = 56, .in_stride = 64, .out_c = 64, .out_h = 56, .out_w = 56, .out_stride = 64};
  const std::vector<float> ones(static_cast<size_t>(shape.out_c), 1.0f);
  const std::vector<int8_t> weight(static_cast<size_t>(shape.in_c) * shape.out_c, 1);
  for (const int capability : {80, 86, 89, 90, 100, 120}) {
    std::vector<CudaConv2d> found;
    wgmma_choices({shape, {}, {weight.data(), ones.data(), ones.data()}, 128, {capability, 132}}, found);
    EXPECT_EQ(found.empty(), capability != 90) << capability;
  }
}

TEST(Conv2dCudaWgmma, LeavesUnevenPaddingToOthers) {
  std::mt19937 random(12);
  int uneven = 0;
  for (int i = 0; i < 200; ++i) {
    const ConvCase c = random_ungrouped_case(random, /*uneven_padding=*/true);
    ConvCase even = c;
    infer_output(even.shape);
    if (!wgmma_supports(even.shape, c.params, c.weights, c.images)) continue;
    const bool same = c.shape.out_h == even.shape.out_h && c.shape.out_w == even.shape.out_w;
    EXPECT_EQ(wgmma_supports(c.shape, c.params, c.weights, c.images), same) << c.describe();
    std::vector<CudaConv2d> found;
    wgmma_choices({c.shape, c.params, c.weights, c.images, kH200}, found);
    EXPECT_TRUE(same || found.empty()) << c.describe();
    uneven += !same;
  }
  EXPECT_GT(uneven, 30);
}

TEST(Conv2dCudaWgmma, ChoicesAreAHandful) {
  std::mt19937 random(8);
  for (int i = 0; i < 200; ++i) {
    ConvCase c = random_ungrouped_case(random);
    if (i % 2 == 0) keep_two_of_four(c, random);
    std::vector<CudaConv2d> found;
    wgmma_choices({c.shape, c.params, c.weights, c.images, kH200}, found);
    EXPECT_EQ(found.empty(), c.params.y.float_output) << c.describe();
    EXPECT_LE(found.size(), 5u);
    std::set<std::string> names;
    for (const CudaConv2d& conv : found) names.insert(conv.name);
    EXPECT_EQ(names.size(), found.size());
  }
}

}  // namespace
}  // namespace octet::kernels::testing
