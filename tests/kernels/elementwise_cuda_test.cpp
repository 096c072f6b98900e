// SPDX-License-Identifier: Apache-2.0
// Add, mul, requantize, prelu, lookup, subsample-and-pad and copies on the GPU against the definitions, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>

#include "kernels/operators/copies.h"
#include "kernels/operators/elementwise.h"
#include "kernels/operators/lookup.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

struct Tensors {
  int images;
  ElementwiseShape shape;
  int first = 0;  ///< channel of y where the slice begins
  std::vector<uint8_t> x, other;

  std::string describe() const {
    return std::to_string(images) + " images of " + std::to_string(shape.pixels) + " pixels, channels " +
           std::to_string(shape.channels) + " from " + std::to_string(first) + ", strides " +
           std::to_string(shape.x_stride) + " " + std::to_string(shape.other_stride) + " " +
           std::to_string(shape.y_stride);
  }
};

/// Half of them write a slice, at an offset that is often a multiple of 16.
Tensors random_tensors(std::mt19937& random) {
  Tensors t{.images = uniform(random, 1, 7)};
  ElementwiseShape& s = t.shape;
  s.pixels = uniform(random, 1, 80);
  s.channels = random() & 1 ? 16 * uniform(random, 1, 12) : uniform(random, 1, 200);
  s.x_stride = random_stride(random, s.channels);
  s.other_stride = random() & 1 ? s.x_stride : random_stride(random, s.channels);
  s.y_stride = random() & 1 ? s.x_stride : random_stride(random, s.channels);
  if (random() & 1) {
    s.y_is_slice = true;
    const int steps[] = {16, 4, 1};
    t.first = steps[uniform(random, 0, 2)] * uniform(random, 0, 5);
    s.y_stride = random_stride(random, s.channels + t.first);
  }
  const size_t pixels = static_cast<size_t>(t.images) * s.pixels;
  t.x = random_codes(random, pixels * s.x_stride), t.other = random_codes(random, pixels * s.other_stride);
  return t;
}

/// `reference` and `cuda` write the same tensor of canaries.
template <typename Reference, typename Cuda>
void expect_equal(const Tensors& t, int element, const Reference& reference, const Cuda& cuda) {
  const size_t pixels = static_cast<size_t>(t.images) * t.shape.pixels;
  std::vector<uint8_t> expected((pixels * t.shape.y_stride) * element, 77);
  const Stream stream;
  const DeviceBytes x(t.x, stream), other(t.other, stream), y(expected, stream);
  ElementwiseShape all = t.shape;
  all.pixels = static_cast<int>(pixels);
  reference(all, expected.data() + static_cast<size_t>(t.first) * element);
  cuda(CudaElementwiseData{t.images, x.data(), other.data(), y.data() + static_cast<size_t>(t.first) * element},
       stream.get());
  EXPECT_TRUE(y.read(stream) == expected) << t.describe();
}

float random_multiplier(std::mt19937& random) {
  const int exponent = uniform(random, -2, 0);
  return random() & 1 ? std::ldexp(1.0f, exponent) : std::uniform_real_distribution<float>(-0.2f, 1.7f)(random);
}

TEST(ElementwiseCuda, AddIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  for (int i = 0; i < 250 && !HasFailure(); ++i) {
    const Tensors t = random_tensors(random);
    AddParams params{random_input(random), random_input(random), random_multiplier(random), random_multiplier(random),
                     random_output(random)};
    params.y.float_output = uniform(random, 0, 9) == 0;
    expect_equal(
        t, params.y.float_output ? 4 : 1,
        [&](const ElementwiseShape& s, void* y) { add_int8_reference(s, params, t.x.data(), t.other.data(), y); },
        [&](const CudaElementwiseData& data, CudaStream stream) { cuda_add_int8(t.shape, params, data, stream); });
  }
}

TEST(ElementwiseCuda, MulIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(7);
  for (int i = 0; i < 250 && !HasFailure(); ++i) {
    Tensors t = random_tensors(random);
    t.shape.other_is_pixel = random() & 1;
    MulParams params{random_input(random), random_input(random), random_multiplier(random) / 64, random_output(random)};
    params.y.float_output = uniform(random, 0, 9) == 0;
    const int pixels = t.shape.pixels, element = params.y.float_output ? 4 : 1;
    expect_equal(
        t, element,
        [&](ElementwiseShape s, uint8_t* y) {  // image by image: each has a pixel of its own
          s.pixels = pixels;
          for (ptrdiff_t n = 0; n < t.images; ++n) {
            const ptrdiff_t other = n * (s.other_is_pixel ? 1 : pixels) * s.other_stride;
            mul_int8_reference(s, params, t.x.data() + n * pixels * s.x_stride, t.other.data() + other,
                               y + n * pixels * s.y_stride * element);
          }
        },
        [&](const CudaElementwiseData& data, CudaStream stream) { cuda_mul_int8(t.shape, params, data, stream); });
  }
}

TEST(ElementwiseCuda, RequantizeIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(2);
  for (int i = 0; i < 250 && !HasFailure(); ++i) {
    const Tensors t = random_tensors(random);
    RequantizeParams params{random_input(random), random_multiplier(random), random_output(random)};
    params.y.float_output = uniform(random, 0, 9) == 0;
    expect_equal(
        t, params.y.float_output ? 4 : 1,
        [&](const ElementwiseShape& s, void* y) { requantize_int8_reference(s, params, t.x.data(), y); },
        [&](const CudaElementwiseData& data, CudaStream stream) {
          cuda_requantize_int8(t.shape, params, {data.images, data.x, nullptr, data.y}, stream);
        });
  }
}

TEST(ElementwiseCuda, PreluIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(11);
  for (int i = 0; i < 250 && !HasFailure(); ++i) {
    const Tensors t = random_tensors(random);
    PreluParams params{random_input(random), random_multiplier(random), random_output(random)};
    params.y.float_output = uniform(random, 0, 9) == 0;
    std::vector<float> slopes(t.shape.x_stride);
    for (float& slope : slopes) slope = random_multiplier(random);
    std::vector<uint8_t> bytes(slopes.size() * sizeof(float));
    std::memcpy(bytes.data(), slopes.data(), bytes.size());
    const Stream stream;
    const DeviceBytes on_device(bytes, stream);
    expect_equal(
        t, params.y.float_output ? 4 : 1,
        [&](const ElementwiseShape& s, void* y) { prelu_int8_reference(s, params, slopes.data(), t.x.data(), y); },
        [&](const CudaElementwiseData& data, CudaStream own) {
          cuda_prelu_int8(t.shape, params, static_cast<const float*>(static_cast<const void*>(on_device.data())),
                          {data.images, data.x, nullptr, data.y}, own);
        });
  }
}

TEST(ElementwiseCuda, NotANumberBecomesTheLowestCode) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(3);
  Tensors t{.images = 1, .shape = {.pixels = 5, .channels = 16, .x_stride = 16, .other_stride = 16, .y_stride = 16}};
  t.x = t.other = random_codes(random, 80);
  const RequantizeParams params{{0, false}, NAN, {.zero_point = 3, .clamp_min = 9}};
  expect_equal(
      t, 1, [&](const ElementwiseShape& s, void* y) { requantize_int8_reference(s, params, t.x.data(), y); },
      [&](const CudaElementwiseData& data, CudaStream stream) {
        cuda_requantize_int8(t.shape, params, {data.images, data.x, nullptr, data.y}, stream);
      });
}

TEST(ElementwiseCuda, LookupIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(6);
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const int steps[] = {16, 4, 1};
    const int step = steps[i % 3], first = step * uniform(random, 0, 3);
    const long count = static_cast<long>(step) * uniform(random, 1, 3000);
    LookupTable table;
    const std::vector<uint8_t> entries = random_codes(random, 256), x = random_codes(random, first + count);
    std::copy(entries.begin(), entries.end(), table.byte);
    std::vector<uint8_t> expected(first + count + 16, 77);
    const Stream stream;
    const DeviceBytes device_x(x, stream), y(expected, stream);
    lookup_int8_reference(table, x.data() + first, count, expected.data() + first);
    cuda_lookup_int8(table, device_x.data() + first, count, y.data() + first, stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << count << " bytes from " << first;
  }
}

TEST(ElementwiseCuda, TablesOfChannelsAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(7);
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const int steps[] = {16, 4, 1};
    const int step = steps[i % 3], first = step * uniform(random, 0, 3), channels = step * uniform(random, 1, 20);
    const long count = static_cast<long>(channels) * uniform(random, 1, 300);
    const std::vector<uint8_t> tables = random_codes(random, channels * 256), x = random_codes(random, first + count);
    std::vector<uint8_t> expected(first + count + 16, 77);
    const Stream stream;
    const DeviceBytes device_tables(tables, stream), device_x(x, stream), y(expected, stream);
    channel_lookup_int8(tables.data(), channels, x.data() + first, count, expected.data() + first);
    cuda_channel_lookup_int8(device_tables.data(), channels, device_x.data() + first, count, y.data() + first,
                             stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << count << " bytes of " << channels << " channels from " << first;
  }
}

// The channels of YOLOX-S, narrow and uneven ones, many pixels and a single one.
TEST(ElementwiseCuda, TablesOfManyChannelsAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(8);
  for (const int channels : {4, 16, 32, 48, 64, 80, 96, 128, 144, 256, 512, 1008}) {
    for (const int pixels : {1, 31, 400, 25600}) {
      const long count = static_cast<long>(channels) * pixels;
      const std::vector<uint8_t> tables = random_codes(random, channels * 256), x = random_codes(random, count);
      std::vector<uint8_t> expected(count + 16, 77);
      const Stream stream;
      const DeviceBytes device_tables(tables, stream), device_x(x, stream), y(expected, stream);
      channel_lookup_int8(tables.data(), channels, x.data(), count, expected.data());
      cuda_channel_lookup_int8(device_tables.data(), channels, device_x.data(), count, y.data(), stream.get());
      EXPECT_TRUE(y.read(stream) == expected) << pixels << " pixels of " << channels << " channels";
    }
  }
}

TEST(ElementwiseCuda, SubsamplePadIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(4);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    SubsamplePadShape s;
    const int unit = random() & 1 ? 8 : 1;
    s.in_c = unit * uniform(random, 1, 16), s.out_c = s.in_c + unit * uniform(random, 0, 16);
    s.stride_h = uniform(random, 1, 3), s.stride_w = uniform(random, 1, 3);
    s.in_w = uniform(random, 1, 20), s.out_w = (s.in_w - 1) / s.stride_w + 1;
    const int in_h = uniform(random, 1, 20);
    s.out_h = (in_h - 1) / s.stride_h + 1;
    s.in_stride = random_stride(random, s.in_c), s.out_stride = random_stride(random, s.out_c);
    const SubsamplePadParams params{static_cast<uint8_t>(random() & 0xFF)};
    const int images = uniform(random, 1, 7);
    const long x_image = static_cast<long>(in_h) * s.in_w * s.in_stride;
    const long y_image = static_cast<long>(s.out_h) * s.out_w * s.out_stride;

    const std::vector<uint8_t> x = random_codes(random, images * x_image);
    std::vector<uint8_t> expected(images * y_image, 77);
    const Stream stream;
    const DeviceBytes device_x(x, stream), y(expected, stream);
    for (int n = 0; n < images; ++n) {
      subsample_pad_int8(s, params, x.data() + n * x_image, expected.data() + n * y_image);
    }
    cuda_subsample_pad_int8(s, params, {images, x_image, device_x.data(), y.data()}, stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << s.in_c << " to " << s.out_c << " channels";
  }
}

TEST(ElementwiseCuda, PicksAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(6);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    PickShape s;
    const int unit = random() & 1 ? 8 : 1, in_c = unit * uniform(random, 1, 16);
    s.channels = unit * uniform(random, 1, in_c / unit),
    s.first_channel = unit * uniform(random, 0, (in_c - s.channels) / unit);
    s.factor_h = uniform(random, 1, 3), s.factor_w = uniform(random, 1, 3);
    if (i % 3 == 1) s.groups = std::gcd(s.channels, uniform(random, 1, 6));
    if (i % 3 == 2) s.channels = s.part = std::max(1, s.channels / (s.factor_h * s.factor_w)), s.first_channel = 0;
    const int in_h = uniform(random, 1, 10);
    s.in_w = uniform(random, 1, 10), s.out_h = in_h * s.factor_h, s.out_w = s.in_w * s.factor_w;
    s.in_stride = random_stride(random, std::max(in_c, s.part * s.factor_h * s.factor_w)),
    s.out_stride = random_stride(random, s.channels);
    const int images = uniform(random, 1, 7);
    const long x_image = static_cast<long>(in_h) * s.in_w * s.in_stride;
    const long y_image = static_cast<long>(s.out_h) * s.out_w * s.out_stride;

    const std::vector<uint8_t> x = random_codes(random, images * x_image);
    std::vector<uint8_t> expected(images * y_image, 77);
    const Stream stream;
    const DeviceBytes device_x(x, stream), y(expected, stream);
    for (int n = 0; n < images; ++n) {
      pick_int8(s, {0, s.out_h}, x.data() + n * x_image, expected.data() + n * y_image);
    }
    cuda_pick_int8(s, {images, x_image, device_x.data(), y.data()}, stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << s.channels << " channels from " << s.first_channel;
  }
}

TEST(ElementwiseCuda, CopiesCloseGaps) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(5);
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    CopyCodesShape s;
    s.images = uniform(random, 1, 7), s.pixels = uniform(random, 1, 60);
    s.channels = random() & 1 ? 16 * uniform(random, 1, 8) : uniform(random, 1, 100);
    s.x_stride = random_stride(random, s.channels), s.y_stride = random() & 1 ? s.channels : s.x_stride;
    s.x_image_stride = static_cast<long>(s.pixels) * s.x_stride;
    s.y_image_stride = random_stride(random, s.pixels * s.y_stride);
    const std::vector<uint8_t> x = random_codes(random, s.images * s.x_image_stride);
    std::vector<uint8_t> expected(s.images * s.y_image_stride, 77);
    const Stream stream;
    const DeviceBytes device_x(x, stream), y(expected, stream);
    for (int n = 0; n < s.images; ++n) {
      for (int pixel = 0; pixel < s.pixels; ++pixel) {
        std::copy_n(x.begin() + n * s.x_image_stride + static_cast<long>(pixel) * s.x_stride, s.channels,
                    expected.begin() + n * s.y_image_stride + static_cast<long>(pixel) * s.y_stride);
      }
    }
    cuda_copy_codes(s, device_x.data(), y.data(), stream.get());
    EXPECT_TRUE(y.read(stream) == expected) << s.channels << " channels, strides " << s.x_stride << " " << s.y_stride;
  }
}

}  // namespace
}  // namespace octet::kernels::testing
