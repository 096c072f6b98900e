// SPDX-License-Identifier: Apache-2.0
// Two 1x1 convolutions in one kernel against the definition of both, byte for byte.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/conv/cuda/mma/mma.h"
#include "kernels/groups/groups.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/conv2d_cuda.h"
#include "tests/kernels/device_bytes.h"
#include "tests/kernels/random_codes.h"

namespace octet::kernels::testing {
namespace {

struct Case {
  ConvCase expand, reduce;  ///< reduce.x is what expand gives

  ExpandReduce layers() const {
    return {{expand.shape, expand.params, expand.weights}, {reduce.shape, reduce.params, reduce.weights}};
  }
};

ConvCase pointwise(int in_c, int out_c, int side, int images, bool residual, CodeInput x, std::mt19937& random) {
  ConvCase c;
  c.shape = {.in_c = in_c, .in_h = side, .in_w = side, .out_c = out_c};
  infer_output(c.shape);
  c.images = images;
  use_cuda_strides(c);
  c.params.x = x;
  c.params.y = random_output(random);
  c.params.has_residual = residual;
  c.params.residual = random_input(random);
  const Conv2dParams params = c.params;
  fill_random(c, random, {.extreme = random() % 4 == 0});
  const float residual_multiplier = c.params.residual_multiplier;
  c.params = params;
  c.params.residual_multiplier = residual_multiplier;
  c.bind();
  return c;
}

Case make_case(int cluster, int side, int images, bool residual, std::mt19937& random) {
  Case c;
  const int narrow = 32 * cluster, wide = 128 * cluster;
  c.expand = pointwise(narrow, wide, side, images, residual, random_input(random), random);
  const CodeOutput& y = c.expand.params.y;
  c.reduce = pointwise(wide, narrow, side, images, false, {y.zero_point, y.is_signed}, random);
  c.reduce.x = run_reference(c.expand);
  return c;
}

/// Runs every kernel twice, even if it would not be chosen.
void expect_exact_twice(const Case& c) {
  const ExpandReduce layers = c.layers();
  const std::vector<uint8_t> expected = run_reference(c.reduce);
  const Stream stream;
  for (const int pixels : {16, 32}) {
    const CudaExpandReduce choice{c.reduce.shape.out_c / 32, pixels};
    const DeviceBytes packed(cuda_expand_reduce_pack(layers), stream), x(c.expand.x, stream),
        residual(c.expand.residual, stream);
    const DeviceBytes wide(std::vector<uint8_t>(c.reduce.x.size(), kCanary), stream, kCanary);
    const DeviceBytes narrow(std::vector<uint8_t>(expected.size(), kCanary), stream, kCanary);
    const CudaExpandReduceData data{.images = c.expand.images,
                                    .packed = packed.data(),
                                    .x = x.data(),
                                    .residual = c.expand.params.has_residual ? residual.data() : nullptr,
                                    .wide = wide.data(),
                                    .narrow = narrow.data()};
    for (int run = 0; run < 2; ++run) cuda_expand_reduce(choice, layers, data, stream.get());
    expect_exact(c.expand, choice.name(), wide.read(stream), c.reduce.x);
    expect_exact(c.reduce, choice.name(), narrow.read(stream), expected);
  }
}

TEST(ExpandReduceCuda, PairsOfResNetsAreExact) {
  OCTET_NEEDS_GPU();
  if (this_gpu().capability != 90) GTEST_SKIP() << "needs compute capability 9.0";
  std::mt19937 random(1);
  for (const auto& [cluster, side] : {std::pair(2, 56), {4, 28}, {8, 14}, {16, 7}}) {
    expect_exact_twice(make_case(cluster, side, 1, true, random));
  }
}

TEST(ExpandReduceCuda, RandomPairsAreExact) {
  OCTET_NEEDS_GPU();
  if (this_gpu().capability != 90) GTEST_SKIP() << "needs compute capability 9.0";
  std::mt19937 random(2);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    expect_exact_twice(make_case(2 << i % 4, uniform(random, 1, 9), uniform(random, 1, 4), random() % 2, random));
  }
}

// What needs no GPU.
TEST(ExpandReduceCuda, OtherPairsHaveNoChoice) {
  std::mt19937 random(3);
  const auto choices = [](const Case& c, const CudaGpu& gpu = kH200) {
    return cuda_expand_reduce_choices(c.layers(), c.expand.images, gpu).size();
  };
  const Case good = make_case(2, 3, 1, true, random);
  EXPECT_EQ(choices(good), 2u);
  EXPECT_EQ(choices(good, kA100), 0u) << "no clusters";
  EXPECT_EQ(choices(make_case(1, 3, 1, true, random)), 0u);
  EXPECT_EQ(choices(make_case(3, 3, 1, true, random)), 0u);
  EXPECT_EQ(choices(make_case(2, 56, 1, true, random)), 2u);
  EXPECT_EQ(choices(make_case(2, 56, 3, true, random)), 0u) << "more blocks than run at once";
  Case c = good;
  c.reduce.shape.out_c = 32;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.expand.shape.stride_h = 2;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.reduce.shape.in_stride += 16;
  EXPECT_EQ(choices(c), 0u) << "it would read what expand does not write";
  // Shapes that convolutions have: what is padded above and to the left is cut off below and to the right.
  c = good, c.expand.shape.pad_h = 1;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.reduce.shape.pad_w = 1;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.reduce.shape.in_h = c.reduce.shape.out_h = 2;
  EXPECT_EQ(choices(c), 0u) << "other pixels than expand writes";
  c = good, c.reduce.shape.in_w = c.reduce.shape.out_w = 4;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.reduce.params.x.zero_point += 1;
  EXPECT_EQ(choices(c), 0u) << "other codes than expand writes";
  c = good, c.reduce.params.x.is_signed = !c.reduce.params.x.is_signed;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.reduce.params.has_residual = true;
  EXPECT_EQ(choices(c), 0u);
  c = good, c.reduce.params.y.float_output = true;
  EXPECT_EQ(choices(c), 0u);
}

// Computes both convolutions from packed data alone, by the formulas for the positions of weights.
TEST(ExpandReduceCuda, PackedDataHoldsBothConvolutions) {
  std::mt19937 random(4);
  for (const int cluster : {2, 4, 8, 16}) {
    const Case c = make_case(cluster, 1, 1, true, random);
    const std::vector<uint8_t> packed = cuda_expand_reduce_pack(c.layers());
    size_t at = 0;
    const MmaTile tiles[] = {{.block_n = 128, .warps_n = 8}, {.block_n = 32, .warps_n = 1}};
    for (const ConvCase* conv : {&c.expand, &c.reduce}) {
      const MmaTile& tile = tiles[conv == &c.reduce];
      const int in_c = conv->shape.in_c, out_c = conv->shape.out_c;
      at = (at + 255) / 256 * 256;
      const CudaChannelConstants constants = cuda_channel_constants(packed.data() + at, out_c);
      const int8_t* weight = reinterpret_cast<const int8_t*>(packed.data() + at + cuda_constants_bytes(out_c));
      for (int k = 0; k < out_c; ++k) {
        const int row = mma_weight_row(tile, k % tile.block_n);
        const int8_t* of_channel = weight + (k / tile.block_n * tile.block_n + row) * in_c;
        int sum = 0;
        for (int i = 0; i < in_c; ++i) {
          const int8_t w = of_channel[mma_swizzle(in_c, row, i / 16) * 16 + i % 16];
          ASSERT_EQ(w, conv->weight[static_cast<size_t>(k) * in_c + i]) << cluster << ": " << k << ", " << i;
          sum += w;
        }
        ASSERT_EQ(constants.init[k], -conv->params.x.zero_point * sum);
        ASSERT_EQ(constants.multiplier[k], conv->multiplier[k]);
        ASSERT_EQ(constants.bias[k], conv->bias[k]);
      }
      at += cuda_constants_bytes(out_c) + static_cast<size_t>(out_c) * in_c;
    }
    EXPECT_EQ(packed.size(), at);
  }
}

}  // namespace
}  // namespace octet::kernels::testing
