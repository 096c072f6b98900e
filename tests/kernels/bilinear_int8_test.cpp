// SPDX-License-Identifier: Apache-2.0
// Bilinear resizing: worked numbers, and every path against the definition.
#include "kernels/operators/bilinear.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(Bilinear, WorkedNumbers) {
  const BilinearShape shape{
      .channels = 1, .in_h = 1, .in_w = 3, .in_stride = 1, .out_stride = 1, .factor_h = 1, .factor_w = 2};
  const uint8_t x[3] = {10, 14, 50};
  uint8_t y[6];
  // Means with weights 1, (3, 1), (1, 3), (3, 1), (1, 3), 1 of quarters: 10, 11, 13, 23, 41, 50; sums are 8 times as
  // much.
  bilinear_int8_reference(shape, {.x = {10, false}, .multiplier = 1.0f / 8, .y = {.zero_point = 10}}, x, y);
  EXPECT_EQ(Bytes(y, y + 6), (Bytes{10, 11, 13, 23, 41, 50}));
  // Half the scale twice over: 5, 5.5, 6.5, 11.5, 20.5, 25 and 1 more; halves go to even.
  bilinear_int8_reference(shape, {.x = {0, false}, .multiplier = 1.0f / 16, .y = {.zero_point = 1}}, x, y);
  EXPECT_EQ(Bytes(y, y + 6), (Bytes{6, 7, 7, 13, 21, 26}));
}

TEST(Bilinear, BothAxesAndFloats) {
  const BilinearShape shape{
      .channels = 1, .in_h = 2, .in_w = 2, .in_stride = 1, .out_stride = 1, .factor_h = 3, .factor_w = 2};
  const int8_t x[4] = {-12, 0, 24, -128};
  float y[24];
  bilinear_int8_reference(shape, {.x = {0, true}, .multiplier = 1.0f / 24, .y = {.float_output = true}}, x, y);
  // Rows at 1, 1, 2/3, 1/3, 0, 0 of the first; columns at 1, 3/4, 1/4, 0 of the first.
  for (int r = 0; r < 6; ++r) {
    for (int c = 0; c < 4; ++c) {
      const double above[] = {1, 1, 2 / 3.0, 1 / 3.0, 0, 0}, left[] = {1, 0.75, 0.25, 0};
      const double top = x[0] * left[c] + x[1] * (1 - left[c]), bottom = x[2] * left[c] + x[3] * (1 - left[c]);
      EXPECT_NEAR(y[r * 4 + c], top * above[r] + bottom * (1 - above[r]), 1e-5) << r << " " << c;
    }
  }
}

TEST(Bilinear, WeightsAreWholeAndLieInTheImage) {
  for (int factor = 1; factor <= 9; ++factor) {
    for (int size = 1; size <= 4; ++size) {
      for (int out = 0; out < size * factor; ++out) {
        const BilinearTaps taps = bilinear_taps(out, factor, size);
        EXPECT_EQ(taps.first_weight + taps.second_weight, 2 * factor);
        EXPECT_GT(taps.first_weight, 0);
        EXPECT_GE(taps.second_weight, 0);
        EXPECT_TRUE(taps.first >= 0 && taps.second >= taps.first && taps.second < size) << out;
      }
    }
  }
}

/// The largest sums of all, 2^24 - 256, and their negative: float32 has them, and twice the code comes out.
TEST(Bilinear, LargestSumsAreExact) {
  const BilinearShape shape{
      .channels = 1, .in_h = 1, .in_w = 1, .in_stride = 1, .out_stride = 1, .factor_h = 257, .factor_w = 64};
  const std::vector<uint8_t> ends = {0, 255};
  for (const int zero : {0, 255}) {
    const uint8_t x = ends[zero == 0 ? 1 : 0];
    std::vector<float> y(257 * 64);
    bilinear_int8_reference(shape, {.x = {zero, false}, .multiplier = 1, .y = {.float_output = true}}, &x, y.data());
    for (const float sum : y) ASSERT_EQ(sum, zero == 0 ? 16776960.0f : -16776960.0f);
    std::vector<float> fast(y.size());
    cpu_bilinear_u8(CpuIsa::portable, shape, {.x = {zero, false}, .multiplier = 1, .y = {.float_output = true}},
                    {0, 257}, &x, fast.data());
    EXPECT_EQ(fast, y);
  }
}

TEST(Bilinear, EveryPathGivesTheDefinitionsBytes) {
  std::mt19937 generator(5);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  for (const CpuIsa isa : available_cpu_isas()) {
    for (int i = 0; i < 60; ++i) {
      BilinearShape s;
      s.channels = i % 3 == 0 ? 16 * between(1, 8) : between(1, 90);
      s.in_h = between(1, 7), s.in_w = between(1, 7);
      s.factor_h = between(1, 5), s.factor_w = between(1, 5);
      s.in_stride = cpu_channel_stride(s.channels), s.out_stride = s.channels + between(0, 2);
      BilinearParams params{{between(0, 255), false}, 0, {.zero_point = between(0, 255), .clamp_min = between(0, 90)}};
      params.multiplier = static_cast<float>(between(1, 3)) / static_cast<float>(4 * s.factor_h * s.factor_w);
      params.y.float_output = i % 4 == 0;
      Bytes x(static_cast<size_t>(s.in_h) * s.in_w * s.in_stride);
      for (uint8_t& byte : x) byte = static_cast<uint8_t>(generator());
      const size_t element = params.y.float_output ? sizeof(float) : 1;
      Bytes expected(static_cast<size_t>(s.out_h()) * s.out_w() * s.out_stride * element, 77), actual = expected;
      bilinear_int8_reference(s, params, x.data(), expected.data());
      const int half = s.out_h() / 2;
      cpu_bilinear_u8(isa, s, params, {0, half}, x.data(), actual.data());
      cpu_bilinear_u8(isa, s, params, {half, s.out_h()}, x.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << s.channels << " channels, times " << s.factor_h << "x"
                                  << s.factor_w;
    }
  }
}

}  // namespace
}  // namespace octet::kernels
