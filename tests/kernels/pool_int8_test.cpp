// SPDX-License-Identifier: Apache-2.0
// Pooling: worked numbers, and every path against the definition.
#include "kernels/operators/pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

// 3 x 3 pixels of one channel, 2 x 2 window, stride 2, one row and column of padding above and left.
PoolShape small_pool() {
  return {.channels = 1,
          .in_h = 3,
          .in_w = 3,
          .in_stride = 1,
          .out_h = 2,
          .out_w = 2,
          .out_stride = 1,
          .kernel_h = 2,
          .kernel_w = 2,
          .stride_h = 2,
          .stride_w = 2,
          .pad_h = 1,
          .pad_w = 1};
}

TEST(MaxPool, PaddingNeverWins) {
  const int8_t x[9] = {-9, -8, -7, -6, -5, -4, -3, -2, -1};
  int8_t y[4];
  max_pool_int8_reference(small_pool(), {.is_signed = true, .clamp_min = -128, .clamp_max = 127}, x, y);
  EXPECT_EQ(std::vector<int>(y, y + 4), (std::vector<int>{-9, -7, -3, -1}));
}

TEST(MaxPool, ClampIsAReluBehindIt) {
  const int8_t x[9] = {-9, -8, 7, -6, -5, -4, 3, -2, 100};
  int8_t y[4];
  max_pool_int8_reference(small_pool(), {.is_signed = true, .clamp_min = 0, .clamp_max = 50}, x, y);
  EXPECT_EQ(std::vector<int>(y, y + 4), (std::vector<int>{0, 7, 3, 50}));
}

TEST(AvgPool, PaddingAddsRealZero) {
  const uint8_t x[9] = {30, 12, 14, 10, 10, 11, 20, 13, 33};
  uint8_t y[4];
  const AvgPoolParams params{.x = {10, false}, .multiplier = 0.25f, .y = {.zero_point = 5}};
  avg_pool_int8_reference(small_pool(), params, x, y);
  // Sums less the zero point: 20, 2 + 4, 0 + 10, 0 + 1 + 3 + 23; a quarter of it, halves to even: 5, 1.5, 2.5, 6.75.
  EXPECT_EQ(Bytes(y, y + 4), (Bytes{10, 7, 7, 12}));
}

TEST(AvgPool, FloatOutputIsTheProductItself) {
  PoolShape shape = small_pool();
  shape.out_h = shape.out_w = 1, shape.kernel_h = shape.kernel_w = 3, shape.pad_h = shape.pad_w = 0;
  const int8_t x[9] = {1, 2, 3, 4, 5, 6, 7, 8, -128};
  float y = 0;
  avg_pool_int8_reference(shape, {.x = {0, true}, .multiplier = 0.1f, .y = {.float_output = true}}, x, &y);
  EXPECT_EQ(y, -92.0f * 0.1f);
}

TEST(Pools, EveryPathGivesTheDefinitionsBytes) {
  std::mt19937 generator(5);
  for (const CpuIsa isa : available_cpu_isas()) {
    for (const int channels : {1, 3, 64, 77, 300}) {
      const PoolShape shape{.channels = channels,
                            .in_h = 9,
                            .in_w = 7,
                            .in_stride = cpu_channel_stride(channels),
                            .out_h = 5,
                            .out_w = 5,  // windows reach two pixels behind the image
                            .out_stride = channels + 2,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 2,
                            .stride_w = 2,
                            .pad_h = 1,
                            .pad_w = 1};
      Bytes x(static_cast<size_t>(shape.in_h) * shape.in_w * shape.in_stride);
      for (uint8_t& byte : x) byte = static_cast<uint8_t>(generator());
      Bytes expected(static_cast<size_t>(shape.out_h) * shape.out_w * shape.out_stride, 77), actual = expected;
      const MaxPoolParams max{.clamp_min = 210, .clamp_max = 240};
      max_pool_int8_reference(shape, max, x.data(), expected.data());
      cpu_max_pool_u8(isa, shape, max, {0, 2}, x.data(), actual.data());
      cpu_max_pool_u8(isa, shape, max, {2, 5}, x.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " max " << channels;

      const AvgPoolParams average{.x = {128, false}, .multiplier = 0.13f, .y = {.zero_point = 99, .clamp_min = 60}};
      avg_pool_int8_reference(shape, average, x.data(), expected.data());
      cpu_avg_pool_u8(isa, shape, average, {{0, 5}, {0, channels / 2}}, x.data(), actual.data());
      cpu_avg_pool_u8(isa, shape, average, {{0, 5}, {channels / 2, channels}}, x.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " average " << channels;
    }
  }
}

}  // namespace
}  // namespace octet::kernels
