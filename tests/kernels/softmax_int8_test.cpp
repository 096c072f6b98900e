// SPDX-License-Identifier: Apache-2.0
// Softmax of codes: worked numbers, and every path against the definition.
#include "kernels/operators/attention.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"

namespace octet::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

/// Halves with each code.
SoftmaxParams halving(float multiplier) {
  SoftmaxParams params;
  for (int d = 0; d < 256; ++d) params.exponential[d] = d < 16 ? 32768 >> d : 0;
  params.multiplier = multiplier;
  return params;
}

TEST(Softmax, WorkedNumbers) {
  const SoftmaxShape shape{.pixels = 1, .groups = 2, .channels = 3, .x_stride = 6, .y_stride = 6};
  const uint8_t x[6] = {100, 99, 99, 7, 3, 7};  // halves and quarters; 16, 1 and 16 of 33
  SoftmaxParams params = halving(66);
  params.y = {.zero_point = 1};
  uint8_t y[6];
  softmax_int8_reference(shape, params, x, y);
  EXPECT_EQ(Bytes(y, y + 6), (Bytes{34, 17, 17, 33, 3, 33}));  // 16.5 to even, 2, 32
}

TEST(Softmax, SignedCodesAndFloats) {
  const SoftmaxShape shape{.pixels = 2, .groups = 1, .channels = 2, .x_stride = 2, .y_stride = 2};
  const int8_t x[4] = {-128, 127, 1, -1};
  SoftmaxParams params = halving(1);
  params.x_is_signed = true;
  params.y.float_output = true;
  float y[4];
  softmax_int8_reference(shape, params, x, y);
  EXPECT_EQ(std::vector<float>(y, y + 4), (std::vector<float>{0, 1, 0.8f, 0.2f}));
}

/// The most channels there are: their sum is just below 2^31.
TEST(Softmax, TheLargestSumStaysWithinInt32) {
  constexpr int kChannels = 65535;
  const SoftmaxShape shape{.pixels = 1, .channels = kChannels, .x_stride = kChannels, .y_stride = kChannels};
  const Bytes x(kChannels, 200);
  SoftmaxParams params = halving(65536 * 100.0f);
  params.y.float_output = true;
  std::vector<float> y(kChannels), fast(kChannels);
  softmax_int8_reference(shape, params, x.data(), y.data());
  EXPECT_EQ(y, std::vector<float>(kChannels, 1.0f / kChannels * (65536 * 100.0f)));
  cpu_softmax_u8(best_cpu_isa(), shape, params, {0, 1}, x.data(), fast.data());
  EXPECT_EQ(fast, y);
}

TEST(Softmax, EveryPathGivesTheDefinitionsBytes) {
  std::mt19937 generator(5);
  const auto between = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(generator); };
  for (const CpuIsa isa : available_cpu_isas()) {
    for (int i = 0; i < 120; ++i) {
      SoftmaxShape s{.pixels = between(1, 9), .groups = between(1, 4), .channels = between(1, i % 5 == 0 ? 500 : 40)};
      s.x_stride = cpu_channel_stride(s.groups * s.channels), s.y_stride = s.groups * s.channels + between(0, 2);
      SoftmaxParams params = halving(static_cast<float>(between(1, 1024)));
      if (i % 2 == 0)
        for (int d = 1; d < 256; ++d) params.exponential[d] = between(0, 32768);
      params.y = {.zero_point = between(0, 255), .clamp_min = between(0, 90)};
      params.y.float_output = i % 4 == 0;
      Bytes x(static_cast<size_t>(s.pixels) * s.x_stride);
      for (uint8_t& byte : x) byte = static_cast<uint8_t>(between(0, i % 3 == 0 ? 255 : 20));
      const size_t element = params.y.float_output ? sizeof(float) : 1;
      Bytes expected(static_cast<size_t>(s.pixels) * s.y_stride * element, 77), actual = expected;
      softmax_int8_reference(s, params, x.data(), expected.data());
      const int half = s.pixels / 2;
      cpu_softmax_u8(isa, s, params, {0, half}, x.data(), actual.data());
      cpu_softmax_u8(isa, s, params, {half, s.pixels}, x.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << s.pixels << " pixels, " << s.groups << " groups of "
                                  << s.channels;
    }
  }
}

}  // namespace
}  // namespace octet::kernels
