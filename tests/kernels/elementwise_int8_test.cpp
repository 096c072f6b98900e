// SPDX-License-Identifier: Apache-2.0
// add, mul, requantize, prelu, lookup, subsample_pad and input quantization: worked numbers, and every path against the
// definition.
#include "kernels/operators/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/conv/conv2d.h"
#include "kernels/operators/copies.h"
#include "kernels/operators/lookup.h"

namespace octet::kernels {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes random_bytes(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(generator());
  return bytes;
}

TEST(FastRounding, IsRoundCodeForEveryHalfAndBeyondTheRange) {
  for (const int32_t zero_point : {0, 3, 128, 255}) {
    const CodeOutput out{.zero_point = zero_point, .clamp_min = 5, .clamp_max = 250};
    const FastRounding round(out);
    for (int eighths = -8 * 300; eighths <= 8 * 300; ++eighths) {
      const float t = static_cast<float>(eighths) / 8;
      ASSERT_EQ(round(t), round_code(t, zero_point, 5, 250)) << t << " zero point " << zero_point;
    }
    for (const float t : {1e30f, -1e30f, 16777217.0f, 0.49999997f, -0.5f, 1e-40f}) {
      ASSERT_EQ(round(t), round_code(t, zero_point, 5, 250)) << t;
    }
  }
}

TEST(Requantize, WorkedNumbersSignedToUnsigned) {
  const ElementwiseShape shape{.pixels = 1, .channels = 4, .x_stride = 4, .other_stride = 4, .y_stride = 4};
  const RequantizeParams params{.x = {0, true}, .multiplier = 0.5f, .y = {.zero_point = 10, .clamp_min = 10}};
  const int8_t x[4] = {-6, 5, 7, 127};  // t = -3, 2.5, 3.5, 63.5
  uint8_t y[4];
  requantize_int8_reference(shape, params, x, y);
  EXPECT_EQ(Bytes(y, y + 4), (Bytes{10, 12, 14, 74}));
}

TEST(Add, WorkedNumbersUnsignedToSigned) {
  const ElementwiseShape shape{.pixels = 1, .channels = 3, .x_stride = 3, .other_stride = 3, .y_stride = 3};
  const AddParams params{.x = {128, false},
                         .other = {0, true},
                         .x_multiplier = 0.25f,
                         .other_multiplier = 2,
                         .y = {.zero_point = 0, .clamp_min = -128, .clamp_max = 127, .is_signed = true}};
  const uint8_t x[3] = {130, 126, 255};
  const int8_t other[3] = {-3, 1, 127};  // t = 0.5 - 6, -0.5 + 2, 31.75 + 254
  int8_t y[3];
  add_int8_reference(shape, params, x, other, y);
  EXPECT_EQ(y[0], -6);  // -5.5 to even
  EXPECT_EQ(y[1], 2);   // 1.5 to even
  EXPECT_EQ(y[2], 127);
}

TEST(Add, RoundsOnceAfterTheSecondProduct) {
  // 3 * (1 + 2^-23) needs one bit more than a float has; the fma keeps it, a rounded product would cancel to 0.
  const ElementwiseShape shape{.pixels = 1, .channels = 1, .x_stride = 1, .other_stride = 1, .y_stride = 1};
  const float multiplier = 1.0f + 0x1p-23f;
  const AddParams params{.x = {0, false},
                         .other = {0, false},
                         .x_multiplier = -3 * multiplier,
                         .other_multiplier = multiplier,
                         .y = {.float_output = true}};
  const uint8_t x = 1, other = 3;
  float y = 0;
  add_int8_reference(shape, params, &x, &other, &y);
  EXPECT_EQ(y, std::fmaf(3.0f, multiplier, -3 * multiplier));
  EXPECT_NE(y, 0.0f);  // two roundings would cancel
}

TEST(Mul, WorkedNumbersByOnePixel) {
  const ElementwiseShape shape{
      .pixels = 2, .channels = 2, .x_stride = 2, .other_stride = 3, .y_stride = 2, .other_is_pixel = true};
  const MulParams params{.x = {128, false},
                         .other = {0, true},
                         .multiplier = 0.25f,
                         .y = {.zero_point = 0, .clamp_min = -128, .clamp_max = 127, .is_signed = true}};
  const uint8_t x[4] = {130, 126, 255, 0};  // 2, -2 | 127, -128
  const int8_t other[3] = {3, -5, 99};      // t = 1.5, 2.5 | 95.25, 160
  int8_t y[4];
  mul_int8_reference(shape, params, x, other, y);
  EXPECT_EQ(y[0], 2);  // ties to even
  EXPECT_EQ(y[1], 2);
  EXPECT_EQ(y[2], 95);
  EXPECT_EQ(y[3], 127);
}

TEST(Prelu, WorkedNumbersOfEachChannel) {
  const ElementwiseShape shape{.pixels = 2, .channels = 3, .x_stride = 4, .y_stride = 3};
  const PreluParams params{.x = {128, false},
                           .multiplier = 0.5f,
                           .y = {.zero_point = 10, .clamp_min = -128, .clamp_max = 127, .is_signed = true}};
  const float slopes[3] = {0.25f, -0.5f, 0.0f};
  const uint8_t x[8] = {118, 118, 118, 0, 131, 128, 0, 0};  // -10, -10, -10 | 3, 0, -128
  int8_t y[6];
  prelu_int8_reference(shape, params, slopes, x, y);  // t = -2.5, 5, 0 | 1.5, 0, 0
  EXPECT_EQ(std::vector<int>(y, y + 6), (std::vector<int>{8, 15, 10, 12, 10, 10}));
}

TEST(Prelu, EveryPathGivesTheDefinitionsBytes) {
  for (const CpuIsa isa : available_cpu_isas()) {
    for (const int channels : {1, 3, 16, 37, 64, 130}) {
      const int x_stride = cpu_channel_stride(channels);
      const Bytes x = random_bytes(9 * static_cast<size_t>(x_stride), 5);
      std::vector<float> slopes;
      for (int c = 0; c < channels; ++c) slopes.push_back(0.013f * static_cast<float>(c % 7 - 2));
      for (const bool floats : {false, true}) {
        const ElementwiseShape shape{
            .pixels = 9, .channels = channels, .x_stride = x_stride, .y_stride = floats ? channels : x_stride};
        const PreluParams params{
            {100, false}, 0.7f, {.zero_point = 20, .clamp_min = 3, .clamp_max = 120, .float_output = floats}};
        Bytes expected(9 * static_cast<size_t>(shape.y_stride) * (floats ? 4 : 1), 77), actual = expected;
        prelu_int8_reference(shape, params, slopes.data(), x.data(), expected.data());
        cpu_prelu_u8(isa, shape, params, slopes.data(), {0, 4}, x.data(), actual.data());
        cpu_prelu_u8(isa, shape, params, slopes.data(), {4, 9}, x.data(), actual.data());
        EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << channels << " channels, floats " << floats;
      }
    }
  }
}

TEST(Elementwise, EveryPathGivesTheDefinitionsBytes) {
  for (const CpuIsa isa : available_cpu_isas()) {
    for (const int channels : {1, 3, 16, 37, 64, 130}) {
      const ElementwiseShape shape{.pixels = 9,
                                   .channels = channels,
                                   .x_stride = cpu_channel_stride(channels),
                                   .other_stride = channels + 3,
                                   .y_stride = channels + 1,
                                   .y_is_slice = true};
      const Bytes x = random_bytes(9 * shape.x_stride, 1), other = random_bytes(9 * shape.other_stride, 2);
      const RequantizeParams requantize{{100, false}, 0.7f, {.zero_point = 20, .clamp_min = 20, .clamp_max = 90}};
      Bytes expected(9 * shape.y_stride, 77), actual = expected;
      requantize_int8_reference(shape, requantize, x.data(), expected.data());
      cpu_requantize_u8(isa, shape, requantize, {0, 4}, x.data(), actual.data());
      cpu_requantize_u8(isa, shape, requantize, {4, 9}, x.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << channels;

      const AddParams add{{100, false}, {7, false}, 0.3f, -0.45f, {.zero_point = 60}};
      add_int8_reference(shape, add, x.data(), other.data(), expected.data());
      cpu_add_u8(isa, shape, add, {0, 9}, x.data(), other.data(), actual.data());
      EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << channels;

      const MulParams mul{{100, false}, {7, false}, 0.013f, {.zero_point = 60}};
      for (const bool one_pixel : {false, true}) {
        ElementwiseShape same = shape;
        same.other_is_pixel = one_pixel;
        mul_int8_reference(same, mul, x.data(), other.data(), expected.data());
        cpu_mul_u8(isa, same, mul, {0, 5}, x.data(), other.data(), actual.data());
        cpu_mul_u8(isa, same, mul, {5, 9}, x.data(), other.data(), actual.data());
        EXPECT_EQ(actual, expected) << cpu_isa_name(isa) << " " << channels << " mul " << one_pixel;
      }
    }
  }
}

/// Strides of the cpu engine, where a factor a channel repeats within 64 bytes or not; the lanes behind the channels
/// are the kernel's to write.
TEST(Elementwise, ProductsWithAFactorForEachChannel) {
  for (const CpuIsa isa : available_cpu_isas()) {
    for (const int channels : {1, 4, 8, 16, 31, 32, 40, 64, 96, 144}) {
      const int stride = cpu_channel_stride(channels), pixels = 13;
      const ElementwiseShape shape{.pixels = pixels,
                                   .channels = channels,
                                   .x_stride = stride,
                                   .other_stride = stride,
                                   .y_stride = stride,
                                   .other_is_pixel = true};
      const Bytes x = random_bytes(pixels * stride, 3), other = random_bytes(stride, 4);
      for (const int zero : {0, 60, 255}) {
        const MulParams mul{{zero, false},
                            {255 - zero, false},
                            zero == 0 ? -0.011f : 0.0123f,
                            {.zero_point = zero, .clamp_min = zero / 2, .clamp_max = 255 - zero / 5}};
        Bytes expected(pixels * stride), actual(pixels * stride);
        mul_int8_reference(shape, mul, x.data(), other.data(), expected.data());
        cpu_mul_u8(isa, shape, mul, {0, 6}, x.data(), other.data(), actual.data());
        cpu_mul_u8(isa, shape, mul, {6, pixels}, x.data(), other.data(), actual.data());
        for (int pixel = 0; pixel < pixels; ++pixel)
          for (int c = 0; c < channels; ++c)
            ASSERT_EQ(actual[pixel * stride + c], expected[pixel * stride + c])
                << cpu_isa_name(isa) << " " << channels << " channels, pixel " << pixel << ", channel " << c;
      }
    }
  }
}

TEST(Lookup, EveryPathFindsEveryEntryAndWritesNoMore) {
  LookupTable table;
  const Bytes entries = random_bytes(256, 5);
  std::copy(entries.begin(), entries.end(), table.byte);
  for (const CpuIsa isa : available_cpu_isas()) {
    for (const long count : {0, 1, 63, 64, 65, 256, 1000}) {
      Bytes x = random_bytes(count, 6);
      for (long i = 0; i < count && i < 256; ++i) x[i] = static_cast<uint8_t>(i);
      Bytes y(count + 64, 77);
      cpu_lookup_u8(isa, table, x.data(), count, y.data());
      for (long i = 0; i < count + 64; ++i) {
        ASSERT_EQ(y[i], i < count ? entries[x[i]] : 77) << cpu_isa_name(isa) << " " << count << ", byte " << i;
      }
    }
  }
}

TEST(Lookup, EachChannelHasItsTable) {
  const Bytes tables = random_bytes(3 * 256, 7), x = random_bytes(5 * 3, 8);
  Bytes y(5 * 3 + 4, 77);
  channel_lookup_int8(tables.data(), 3, x.data(), 5 * 3, y.data());
  for (int pixel = 0; pixel < 5; ++pixel)
    for (int c = 0; c < 3; ++c) EXPECT_EQ(y[pixel * 3 + c], tables[256 * c + x[pixel * 3 + c]]) << pixel << " " << c;
  EXPECT_EQ(y[15], 77);
}

// Index functions of a kernel: every word of every pixel once, every entry of the tables in a bank of its lane.
TEST(ChannelLookupPlan, TakesEveryWordOnceAndGivesEachLaneItsBank) {
  constexpr int kLanes = ChannelLookupPlan::kLanes, kWarps = 5;
  for (const int channels : {4, 16, 32, 48, 64, 80, 96, 128, 144, 256, 512, 1008}) {
    for (const int pixels : {1, 7, 100}) {
      const ChannelLookupPlan plan(channels, pixels);
      std::vector<int> taken(static_cast<size_t>(pixels) * plan.words);
      for (int chunk = 0; chunk < plan.chunks; ++chunk)
        for (int thread = 0; thread < kWarps * kLanes; ++thread) {
          const int lane = thread % kLanes, word = plan.word(chunk, lane);
          if (word < 0) continue;
          for (int pixel = plan.first_pixel(thread / kLanes, lane); pixel < pixels; pixel += plan.step(kWarps))
            ++taken[static_cast<size_t>(pixel) * plan.words + word];
        }
      EXPECT_EQ(taken, std::vector<int>(taken.size(), 1)) << channels << " channels, " << pixels << " pixels";
    }
  }
  std::vector<int> used(4 * ChannelLookupPlan::kTableWords);
  for (int channel = 0; channel < 4; ++channel)
    for (uint32_t code = 0; code < 256; ++code)
      for (int lane = 0; lane < kLanes; ++lane) {
        const int byte = ChannelLookupPlan::table_byte(channel, code, lane);
        ASSERT_LT(byte, static_cast<int>(used.size()));
        ++used[byte];
        EXPECT_EQ(byte / 4 % 32, lane) << "the bank";
      }
  EXPECT_EQ(used, std::vector<int>(used.size(), 1));
}

TEST(SubsamplePad, CopiesEveryStridePixelBetweenZeros) {
  const SubsamplePadShape shape{.in_c = 1,
                                .in_w = 3,
                                .in_stride = 1,
                                .out_c = 3,
                                .out_h = 1,
                                .out_w = 2,
                                .out_stride = 3,
                                .stride_h = 2,
                                .stride_w = 2};
  const Bytes x = {1, 2, 3, 4, 5, 6};  // 2 x 3 pixels
  Bytes y(6);
  subsample_pad_int8(shape, {.zero_code = 9}, x.data(), y.data());
  EXPECT_EQ(y, (Bytes{9, 1, 9, 9, 3, 9}));
}

TEST(Pick, TakesChannelsAndRepeatsPixels) {
  const Bytes x = {1, 2, 3, 4, 5, 6};  // 1 x 2 pixels of 3 channels
  Bytes y(6, 77);
  const PickShape slice{
      .in_w = 2, .in_stride = 3, .first_channel = 1, .channels = 2, .out_h = 1, .out_w = 2, .out_stride = 3};
  pick_int8(slice, {0, 1}, x.data(), y.data());
  EXPECT_EQ(y, (Bytes{2, 3, 77, 5, 6, 77}));
  const PickShape resize{
      .in_w = 2, .in_stride = 3, .channels = 1, .out_h = 2, .out_w = 6, .out_stride = 1, .factor_h = 2, .factor_w = 3};
  y.assign(12, 77);
  pick_int8(resize, {0, 2}, x.data(), y.data());
  EXPECT_EQ(y, (Bytes{1, 1, 1, 4, 4, 4, 1, 1, 1, 4, 4, 4}));
}

TEST(Pick, ReordersChannelsAndMakesPixelsOfThem) {
  const Bytes x = {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16};  // 1 x 2 pixels of 6 channels
  Bytes y(12, 77);
  PickShape shuffle{.in_w = 2, .in_stride = 6, .channels = 6, .out_h = 1, .out_w = 2, .out_stride = 6, .groups = 2};
  pick_int8(shuffle, {0, 1}, x.data(), y.data());
  EXPECT_EQ(y, (Bytes{1, 4, 2, 5, 3, 6, 11, 14, 12, 15, 13, 16}));
  const PickShape pixels{.in_w = 2,
                         .in_stride = 6,
                         .channels = 1,
                         .out_h = 2,
                         .out_w = 6,
                         .out_stride = 1,
                         .factor_h = 2,
                         .factor_w = 3,
                         .part = 1};
  pick_int8(pixels, {0, 2}, x.data(), y.data());
  EXPECT_EQ(y, (Bytes{1, 2, 3, 11, 12, 13, 4, 5, 6, 14, 15, 16}));
}

TEST(QuantizeImage, LooksUpEachChannelsTable) {
  for (const int channels : {1, 3, 5}) {
    for (const int stride : {4, 8}) {
      if (stride < channels) continue;
      const Bytes tables = random_bytes(256 * channels, 3), image = random_bytes(10 * channels, 4);
      Bytes codes(10 * stride, 77);
      quantize_image({.channels = channels, .out_stride = stride}, {1, 10}, tables.data(), image.data(), codes.data());
      for (int i = 0; i < 10 * stride; ++i) {
        const int pixel = i / stride, c = i % stride;
        const int expected = pixel == 0 ? 77 : c >= channels ? 0 : tables[256 * c + image[pixel * channels + c]];
        ASSERT_EQ(codes[i], expected) << channels << " channels, stride " << stride << ", byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace octet::kernels
