// SPDX-License-Identifier: Apache-2.0
// Convolutions that look their codes up in a table a channel, against the two nodes one after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "kernels/conv/cuda/wgmma/wgmma.h"
#include "kernels/core/divide.h"
#include "kernels/groups/groups.h"
#include "kernels/operators/lookup.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/conv2d_random.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

ConvLookup layers_of(const ConvCase& c, std::mt19937& random) {
  return {{c.shape, c.params, c.weights}, random_codes(random, static_cast<size_t>(round_up(c.shape.out_c, 16)) * 256)};
}

/// The convolution's codes, looked up channel by channel. Lanes behind the channels stay as they are.
std::vector<uint8_t> expected_of(const ConvCase& c, const ConvLookup& layers) {
  std::vector<uint8_t> y = run_reference(c);
  for (size_t pixel = 0; pixel < y.size(); pixel += c.shape.out_stride) {
    channel_lookup_int8(layers.tables.data(), c.shape.out_c, y.data() + pixel, c.shape.out_c, y.data() + pixel);
  }
  return y;
}

/// Runs every tile that fits, also those that would not be chosen; returns how many.
int expect_tables_exact(const ConvCase& c, std::mt19937& random) {
  const ConvLookup layers = layers_of(c, random);
  const std::vector<uint8_t> expected = expected_of(c, layers);
  int tiles = 0;
  for (int tile = 0; tile < static_cast<int>(kWgmmaTiles.size()); ++tile) {
    if (kWgmmaTiles[tile].sparse || !wgmma_supports(c.shape, c.params, c.weights, c.images)) continue;
    if (!wgmma_fits(kWgmmaTiles[tile], c.shape, c.images, /*channel_tables=*/true)) continue;
    const CudaConv2d conv = wgmma_choice(tile);
    const Stream stream;
    const DeviceBytes packed(cuda_conv_lookup_pack(conv, layers), stream), x(c.x, stream);
    const DeviceBytes y(std::vector<uint8_t>(expected.size(), kCanary), stream, kCanary);
    for (int run = 0; run < 2; ++run) {
      cuda_conv_lookup(conv, layers, {c.images, packed.data(), x.data(), y.data()}, stream.get());
    }
    expect_exact(c, conv.name + " with tables", y.read(stream), expected);
    ++tiles;
  }
  return tiles;
}

ConvCase yolox_case(const Conv2dShape& shape, int images, std::mt19937& random) {
  ConvCase c;
  c.shape = shape;
  c.images = images;
  c.params.x.zero_point = 7;
  c.params.y.zero_point = 100;
  infer_output(c.shape);
  use_cuda_strides(c);
  fill_random(c, random, {});
  return c;
}

// The channels and windows of YOLOX-S: one tile of channels and several, and more of them than tables.
TEST(ConvLookupCuda, LayersOfYoloxAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(1);
  int tiles = 0;
  for (const int in_c : {32, 64, 128}) {
    for (const int out_c : {32, 64, 80, 128, 256, 272}) {
      for (const int kernel : {1, 3}) {
        Conv2dShape shape{.in_c = in_c, .in_h = 20, .in_w = 18, .out_c = out_c, .kernel_h = kernel, .kernel_w = kernel};
        shape.pad_h = shape.pad_w = kernel / 2;
        tiles += expect_tables_exact(yolox_case(shape, 3, random), random);
        shape.stride_h = shape.stride_w = 2;
        tiles += expect_tables_exact(yolox_case(shape, 40, random), random);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(tiles, 200);
}

TEST(ConvLookupCuda, RandomConvolutionsAreExact) {
  OCTET_NEEDS_HOPPER();
  std::mt19937 random(2);
  int tiles = 0;
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    ConvCase c = random_ungrouped_case(random);
    if (c.params.y.float_output) continue;
    c.params.has_residual = false;
    c.lookup.reset();
    tiles += expect_tables_exact(c, random);
  }
  EXPECT_GE(tiles, 100);
}

// Needs no GPU.
TEST(ConvLookupCuda, TablesFitBesideStages) {
  std::mt19937 random(3);
  for (const int in_c : {32, 64, 128, 256, 512}) {
    for (const int kernel : {1, 3}) {
      Conv2dShape shape{.in_c = in_c, .in_h = 40, .in_w = 40, .out_c = 128, .kernel_h = kernel, .kernel_w = kernel};
      shape.pad_h = shape.pad_w = kernel / 2;
      const ConvCase c = yolox_case(shape, 2, random);
      for (const WgmmaTile& tile : kWgmmaTiles) {
        if (!wgmma_fits(tile, c.shape, c.images, true)) continue;
        const WgmmaPlan plan(tile, c.shape, c.images, false, true);
        EXPECT_LE(plan.shared_bytes(), 227 * 1024);
        EXPECT_EQ(plan.more_table_bytes + kWgmmaTableBytes, tile.block_n * 256);
      }
      const ConvLookup layers = layers_of(c, random);
      EXPECT_FALSE(cuda_conv_lookup_choices(layers, c.images, kH200).empty());
      EXPECT_TRUE(cuda_conv_lookup_choices(layers, c.images, kA100).empty());
      ConvLookup added = layers;
      added.conv.params.has_residual = true;
      EXPECT_TRUE(cuda_conv_lookup_choices(added, c.images, kH200).empty());
    }
  }
}

}  // namespace
}  // namespace octet::kernels::testing
