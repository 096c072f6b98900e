// SPDX-License-Identifier: Apache-2.0
// Both convolutions of codes are compared with sums in int64.
#include "src/train/proof/exact_operators.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "tests/train/convolutions.h"

namespace octet {
namespace {

TEST(ExactConv2d, EverySumOnTheCpu) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const test::Convolution c = test::random_convolution(seed);
    const at::Tensor expected = test::sums_of(c);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor weight = c.weight.to(type);
      const at::Tensor direct = exact_conv2d(c.x, weight, c.window, c.groups);
      const at::Tensor columns = column_conv2d(c.x, weight, c.window, c.groups);
      EXPECT_EQ(direct.scalar_type(), type);
      EXPECT_TRUE(columns.is_contiguous(at::MemoryFormat::ChannelsLast)) << seed;
      EXPECT_TRUE(at::equal(direct.to(at::kLong), expected)) << seed;
      EXPECT_TRUE(at::equal(columns.to(at::kLong), expected)) << seed;
    }
  }
}

TEST(ExactConv2d, OneChannelInChannelsLastMemory) {
  test::Convolution c = test::random_convolution(1);
  c.groups = 1;
  c.window = {2, 3, 1, 2, even_padding(1, 0), 2, 1};
  c.weight = at::arange(-20, 22).to(at::kFloat).view({7, 1, 2, 3});
  const at::Tensor x = at::arange(78).to(at::kFloat).view({2, 1, 13, 3});
  c.x = at::empty_strided(x.sizes(), {39, 1, 3, 1}).copy_(x);
  EXPECT_TRUE(at::equal(exact_conv2d(c.x, c.weight, c.window, 1).to(at::kLong), test::sums_of(c)));
}

TEST(ExactConv2d, SumsThatFloat32CannotHold) {
  for (const int groups : {1, 3}) {
    const test::Convolution c = test::large_convolution(groups);
    const at::Tensor expected = test::sums_of(c);
    ASSERT_FALSE(at::equal(expected.to(at::kFloat).to(at::kLong), expected));
    const at::Tensor weight = c.weight.to(exact_type(c.weight, 255));
    EXPECT_TRUE(at::equal(exact_conv2d(c.x, weight, c.window, groups).to(at::kLong), expected)) << groups;
    EXPECT_TRUE(at::equal(column_conv2d(c.x, weight, c.window, groups).to(at::kLong), expected)) << groups;
  }
}

TEST(ExactConv2d, ChoosesTheTypeBySums) {
  at::Tensor codes = at::zeros({2, 1024, 1, 1});
  codes[1].fill_(-127);
  EXPECT_EQ(exact_type(codes, 128), at::kFloat);   // 1024 * 127 * 128 < 2^24
  EXPECT_EQ(exact_type(codes, 130), at::kDouble);  // 16,906,240
}

}  // namespace
}  // namespace octet
