// SPDX-License-Identifier: Apache-2.0
// Pooling on the GPU against the definition, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>

#include "kernels/core/cuda.h"
#include "kernels/operators/pool.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

struct PoolCase {
  PoolShape shape;
  int images = 1;
  std::vector<uint8_t> x;

  size_t x_image() const { return static_cast<size_t>(shape.in_h) * shape.in_w * shape.in_stride; }
  size_t y_image() const { return static_cast<size_t>(shape.out_h) * shape.out_w * shape.out_stride; }
  std::string describe() const {
    const PoolShape& s = shape;
    return std::to_string(images) + " images, " + std::to_string(s.channels) + " channels, strides " +
           std::to_string(s.in_stride) + " " + std::to_string(s.out_stride) + ", in " + std::to_string(s.in_h) + "x" +
           std::to_string(s.in_w) + ", kernel " + std::to_string(s.kernel_h) + "x" + std::to_string(s.kernel_w);
  }
};

PoolCase random_pool(std::mt19937& random) {
  PoolCase c;
  PoolShape& s = c.shape;
  c.images = uniform(random, 1, 7);
  s.channels = uniform(random, 0, 3) == 0 ? 16 * uniform(random, 1, 20) : uniform(random, 1, 300);
  const bool global = uniform(random, 0, 2) == 0;
  s.in_h = uniform(random, 1, 11), s.in_w = uniform(random, 1, 11);
  s.kernel_h = global ? s.in_h : uniform(random, 1, std::min(5, s.in_h));
  s.kernel_w = global ? s.in_w : uniform(random, 1, std::min(5, s.in_w));
  s.stride_h = uniform(random, 1, 3), s.stride_w = uniform(random, 1, 3);
  s.pad_h = global ? 0 : uniform(random, 0, s.kernel_h - 1), s.pad_w = global ? 0 : uniform(random, 0, s.kernel_w - 1);
  const int bottom = global ? 0 : uniform(random, 0, s.kernel_h - 1),
            right = global ? 0 : uniform(random, 0, s.kernel_w - 1);
  s.out_h = (s.in_h + s.pad_h + bottom - s.kernel_h) / s.stride_h + 1;
  s.out_w = (s.in_w + s.pad_w + right - s.kernel_w) / s.stride_w + 1;
  s.in_stride = random_stride(random, s.channels), s.out_stride = random_stride(random, s.channels);
  c.x = random_codes(random, c.images * c.x_image());
  return c;
}

/// `reference` runs one image, `cuda` the batch; `element` bytes an output.
template <typename Reference, typename Cuda>
void expect_equal(const PoolCase& c, int element, const Reference& reference, const Cuda& cuda) {
  const size_t y_image = c.y_image() * element;
  std::vector<uint8_t> expected(c.images * y_image, 77);
  for (int i = 0; i < c.images; ++i) reference(c.x.data() + i * c.x_image(), expected.data() + i * y_image);
  const Stream stream;
  const DeviceBytes x(c.x, stream), y(std::vector<uint8_t>(expected.size(), 77), stream);
  std::vector<uint8_t> scratch(cuda_avg_pool_workspace(c.shape, c.images), 0xEE);
  std::fill_n(scratch.begin(), std::min(scratch.size(), kCudaWorkspaceZeros), uint8_t{0});
  const DeviceBytes workspace(scratch, stream);
  for (int run = 0; run < 2; ++run) cuda(CudaPoolData{c.images, x.data(), y.data(), workspace.data()}, stream.get());
  EXPECT_TRUE(y.read(stream) == expected) << c.describe();
  scratch = workspace.read(stream);
  scratch.resize(std::min(scratch.size(), kCudaWorkspaceZeros));
  EXPECT_TRUE(std::all_of(scratch.begin(), scratch.end(), [](uint8_t byte) { return byte == 0; })) << c.describe();
}

TEST(PoolCuda, MaxIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(1);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    const PoolCase c = random_pool(random);
    const CodeOutput y = random_output(random);
    const MaxPoolParams params{y.is_signed, y.clamp_min, y.clamp_max};
    expect_equal(
        c, 1, [&](const void* x, void* to) { max_pool_int8_reference(c.shape, params, x, to); },
        [&](const CudaPoolData& data, CudaStream stream) { cuda_max_pool_int8(c.shape, params, data, stream); });
  }
}

TEST(PoolCuda, AverageIsTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(2);
  for (int i = 0; i < 200 && !HasFailure(); ++i) {
    PoolCase c = random_pool(random);
    AvgPoolParams params{random_input(random), 0, random_output(random)};
    params.y.float_output = uniform(random, 0, 4) == 0;
    const int window = c.shape.kernel_h * c.shape.kernel_w;
    // Powers of two make many ties.
    params.multiplier = random() & 1 ? 0.5f / window * uniform(random, 1, 4) : 1.0f / 16;
    expect_equal(
        c, params.y.float_output ? 4 : 1,
        [&](const void* x, void* to) { avg_pool_int8_reference(c.shape, params, x, to); },
        [&](const CudaPoolData& data, CudaStream stream) { cuda_avg_pool_int8(c.shape, params, data, stream); });
  }
}

// Networks' global averages: few channels of many pixels, whose windows are split among blocks, and the other way
// round.
TEST(PoolCuda, WideAveragesAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(4);
  int split = 0;
  for (const auto [channels, side, images] : {std::tuple{32, 112, 1},
                                              {32, 112, 3},
                                              {96, 56, 1},
                                              {144, 56, 2},
                                              {17, 40, 1},
                                              {672, 14, 1},
                                              {1152, 7, 1},
                                              {1152, 7, 64},
                                              {1280, 9, 128}}) {
    PoolCase c;
    c.images = images;
    c.shape = {.channels = channels, .in_h = side, .in_w = side + 1, .out_h = 1, .out_w = 1};
    c.shape.kernel_h = c.shape.in_h, c.shape.kernel_w = c.shape.in_w;
    c.shape.in_stride = c.shape.out_stride = (channels + 15) / 16 * 16;
    c.x = random_codes(random, c.images * c.x_image());
    split += cuda_avg_pool_workspace(c.shape, images) > 0;
    for (const bool float_output : {false, true}) {
      AvgPoolParams params{random_input(random), 2.0f / (side * (side + 1)), random_output(random)};
      params.y.float_output = float_output;
      expect_equal(
          c, float_output ? 4 : 1, [&](const void* x, void* to) { avg_pool_int8_reference(c.shape, params, x, to); },
          [&](const CudaPoolData& data, CudaStream stream) { cuda_avg_pool_int8(c.shape, params, data, stream); });
    }
  }
  EXPECT_GE(split, 4);
}

// Large windows, by rows and columns: those of YOLOX's spatial pyramid, uneven ones, clamped, and an image whose row
// maxima do not fit in shared memory.
TEST(PoolCuda, WideMaximaAreTheDefinitions) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(5);
  for (const auto& [channels, side, kernel_h, kernel_w, stride, images] : {std::tuple{256, 20, 5, 5, 1, 1},
                                                                           {256, 20, 9, 9, 1, 32},
                                                                           {256, 20, 13, 13, 1, 3},
                                                                           {17, 20, 13, 13, 1, 2},
                                                                           {48, 15, 2, 9, 1, 2},
                                                                           {48, 15, 9, 2, 3, 2},
                                                                           {32, 13, 13, 13, 2, 2},
                                                                           {16, 80, 5, 5, 1, 1}}) {
    PoolCase c;
    c.images = images;
    PoolShape& s = c.shape;
    s = {.channels = channels, .in_h = side, .in_w = side + 2, .kernel_h = kernel_h, .kernel_w = kernel_w};
    s.stride_h = s.stride_w = stride;
    s.pad_h = kernel_h / 2, s.pad_w = kernel_w / 2;
    s.out_h = (s.in_h + 2 * s.pad_h - kernel_h) / stride + 1, s.out_w = (s.in_w + 2 * s.pad_w - kernel_w) / stride + 1;
    s.in_stride = (channels + 15) / 16 * 16, s.out_stride = s.in_stride + 16;
    c.x = random_codes(random, c.images * c.x_image());
    for (const bool is_signed : {false, true}) {
      const int lowest = is_signed ? -128 : 0;
      for (const MaxPoolParams params :
           {MaxPoolParams{is_signed, lowest, lowest + 255}, MaxPoolParams{is_signed, lowest + 90, lowest + 200}}) {
        expect_equal(
            c, 1, [&](const void* x, void* y) { max_pool_int8_reference(s, params, x, y); },
            [&](const CudaPoolData& data, CudaStream stream) { cuda_max_pool_int8(s, params, data, stream); });
      }
    }
  }
}

TEST(PoolCuda, AWindowMayLieInThePadding) {
  OCTET_NEEDS_GPU();
  std::mt19937 random(3);
  for (const int stride : {16, 17}) {
    PoolCase c{.shape = {.channels = 16,
                         .in_h = 1,
                         .in_w = 1,
                         .in_stride = stride,
                         .out_h = 3,
                         .out_w = 3,
                         .out_stride = stride,
                         .pad_h = 1,
                         .pad_w = 1},
               .x = random_codes(random, stride)};
    const MaxPoolParams max{.clamp_min = 9, .clamp_max = 200};
    expect_equal(
        c, 1, [&](const void* x, void* y) { max_pool_int8_reference(c.shape, max, x, y); },
        [&](const CudaPoolData& data, CudaStream stream) { cuda_max_pool_int8(c.shape, max, data, stream); });
    const AvgPoolParams average{.x = {100, false}, .multiplier = 0.5f, .y = {.zero_point = 3}};
    expect_equal(
        c, 1, [&](const void* x, void* y) { avg_pool_int8_reference(c.shape, average, x, y); },
        [&](const CudaPoolData& data, CudaStream stream) { cuda_avg_pool_int8(c.shape, average, data, stream); });
  }
}

}  // namespace
}  // namespace octet::kernels::testing
