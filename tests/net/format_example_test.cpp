// SPDX-License-Identifier: Apache-2.0
// The worked example of docs/FORMAT.md, computed by the definition of the convolution.
#include <gtest/gtest.h>

#include "kernels/conv/conv2d.h"

namespace octet {
namespace {

uint8_t example_code(float bias) {
  const kernels::Conv2dShape shape{.in_c = 2,
                                   .in_h = 1,
                                   .in_w = 1,
                                   .in_stride = 2,
                                   .out_c = 1,
                                   .out_h = 1,
                                   .out_w = 1,
                                   .out_stride = 1,
                                   .residual_stride = 1};
  const int8_t weight[] = {3, -5};
  const float multiplier = 0.0625f;
  const kernels::Conv2dParams params{.x = {.zero_point = 100},
                                     .y = {.zero_point = 10, .clamp_min = 10, .clamp_max = 255},
                                     .has_residual = true,
                                     .residual = {.zero_point = 3},
                                     .residual_multiplier = 0.5f};
  const uint8_t x[] = {130, 90}, residual[] = {7};
  uint8_t y = 0;
  kernels::conv2d_int8_reference(shape, params, {weight, &multiplier, &bias}, x, residual, &y);
  return y;
}

TEST(FormatExample, CodesAreAsDocumented) {
  EXPECT_EQ(example_code(0.25f), 21);
  EXPECT_EQ(example_code(-20.25f), 10);
}

}  // namespace
}  // namespace octet
