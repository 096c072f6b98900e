// Max pooling in training. Which value of its window each output took is kept in a byte; the backward pass gathers:
// each gradient is written once, and its sum always added in the same order.
#pragma once

#include <cstdint>

#include "kernels/cuda_stream.h"
#include "kernels/value_type.h"

namespace octet::kernels {

constexpr int kMostPooled = 256;  ///< values of a window

/// Channels-last memory. Padding, of the top and the left, is less than the window.
struct MaxPool {
  int images = 0, height = 0, width = 0, channels = 0;  ///< of x
  int out_height = 0, out_width = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  ValueType type = ValueType::float32;
};

/// y [images, out_height, out_width, channels]: the largest value of each window, the first of equal ones; NaN where
/// there is one. chosen, of y's shape: its place in the window, row by row; may be null.
void cuda_max_pool(const MaxPool& pool, const void* x, void* y, uint8_t* chosen, CudaStream stream);

/// dx [images, height, width, channels]: the sum, in float, of dy where x was chosen.
void cuda_max_pool_backward(const MaxPool& pool, const void* dy, const uint8_t* chosen, void* dx, CudaStream stream);

}  // namespace octet::kernels
