// SPDX-License-Identifier: Apache-2.0
#include "src/engine/cuda/step.h"

#include <gtest/gtest.h>

namespace octet {
namespace {

/// No GPU: only the line that a choice is kept by.
TEST(ConvChoice, IsKeptApartForWhateverChangesItsTimes) {
  const kernels::Conv2dShape shape{.in_c = 64, .in_h = 56, .in_w = 56};
  const kernels::Conv2dParams params;
  const kernels::Conv2dWeights weights;
  const std::function<void()> alone, behind = [] {};
  const auto line = [&](const std::function<void()>& before, int images, const kernels::Conv2dShape& of) {
    kernels::CudaConv2dData tensors;
    tensors.images = images;
    return conv_work({of, params, weights, tensors, before});
  };
  EXPECT_EQ(line(alone, 8, shape), line(alone, 8, shape));
  EXPECT_NE(line(alone, 8, shape), line(behind, 8, shape));
  EXPECT_NE(line(alone, 8, shape), line(alone, 9, shape));
  kernels::Conv2dShape wider = shape;
  wider.in_w = 57;
  EXPECT_NE(line(alone, 8, shape), line(alone, 8, wider));
}

}  // namespace
}  // namespace octet
