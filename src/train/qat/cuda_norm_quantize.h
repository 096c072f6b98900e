// SPDX-License-Identifier: Apache-2.0
// BatchNorm in training and the quantizer behind it as one operator on CUDA tensors, in builds with CUDA. Nothing here
// waits for the GPU or allocates outside of LibTorch's allocator, so that steps can be captured in a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/core/quantize.h"
#include "kernels/training/observe.h"
#include "src/train/model/model.h"

namespace octet {

struct NormQuantizer {
  kernels::EdgeQuantizer* edge = nullptr;  ///< in device memory
  bool observe = false;                    ///< its range first follows what is quantized
  kernels::Clamp activation;
  double epsilon = kBatchNormEpsilon;
};

/// Returns whether cuda_norm_quantize() takes y: float16 or bfloat16, channels-last with channels in eights, at least
/// two values a channel, no bias, and a residual, if there is one, of the same kind.
bool norm_quantize_fits(const Unfinished& y);

/// Two tensors of the same memory. Their readers' gradients are added in the backward pass of what made them, where one
/// tensor's would be added in a pass of their own.
struct Twins {
  at::Tensor first, second;
};

/// Returns fake_quantize(activation(batch_norm(y.value) + y.residual)) in training, and moves the running statistics as
/// at::batch_norm() does. BatchNorm's result is rounded to its type, the sum is not. y.value is kept for the backward
/// pass, and one bit a value; sums are always added in the same order.
Twins cuda_norm_quantize(const Unfinished& y, const BatchNormTensors& batch_norm, const NormQuantizer& quantizer);

}  // namespace octet
