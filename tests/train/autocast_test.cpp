// SPDX-License-Identifier: Apache-2.0
#include "src/train/model/device.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace octet {
namespace {

TEST(Autocast, ConvolutionsRunInTheLowPrecisionInsideOnly) {
  const at::Tensor x = at::ones({1, 1, 4, 4}), w = at::ones({1, 1, 3, 3});
  {
    const Autocast autocast(at::kCPU, Precision::bf16);
    EXPECT_EQ(at::conv2d(x, w).scalar_type(), at::kBFloat16);
    {
      const Autocast inner(at::kCPU, Precision::fp16);
      EXPECT_EQ(at::conv2d(x, w).scalar_type(), at::kHalf);
    }
    EXPECT_EQ(at::conv2d(x, w).scalar_type(), at::kBFloat16);
    const Autocast nothing(at::kCPU, Precision::fp32);
    EXPECT_EQ(at::conv2d(x, w).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::conv2d(x, w).scalar_type(), at::kFloat);
}

TEST(Autocast, SurvivesExceptions) {
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  try {
    const Autocast autocast(at::kCPU, Precision::fp16);
    throw std::runtime_error("inside");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), before);
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  at::autocast::decrement_nesting();
}

}  // namespace
}  // namespace octet
