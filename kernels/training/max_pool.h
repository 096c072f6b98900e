// SPDX-License-Identifier: Apache-2.0
// Max pooling in training, on the GPU. The forward pass keeps in a byte which value of its window each output took. The
// backward pass gathers, so that each gradient is written once and sums are added in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/core/cuda.h"

namespace octet::kernels {

constexpr int kMostPooled = 256;  ///< the most values that a window may have

/// The shape of a batch, channels-last. The padding at the top and at the left is smaller than the window.
struct MaxPool {
  int images = 0, height = 0, width = 0, channels = 0;  ///< of x
  int out_height = 0, out_width = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  ValueType type = ValueType::float32;
};

/// Writes the largest value of each window, or NaN if there is one, to y [images, out_height, out_width, channels], and
/// the place of the first such value in its window, counted row by row, to `chosen`, of y's shape. chosen may be null.
void cuda_max_pool(const MaxPool& pool, const void* x, void* y, uint8_t* chosen, CudaStream stream);

/// Writes the sum, in float, of dy over the outputs that took each value of x to dx [images, height, width, channels].
void cuda_max_pool_backward(const MaxPool& pool, const void* dy, const uint8_t* chosen, void* dx, CudaStream stream);

}  // namespace octet::kernels
