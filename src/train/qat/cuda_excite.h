// SPDX-License-Identifier: Apache-2.0
// The product of squeeze-and-excite and the quantizer behind it as one operator on CUDA tensors, in builds with CUDA.
// Nothing here waits for the GPU or allocates outside of LibTorch's allocator, so that steps can be captured in a CUDA
// graph.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/core/quantize.h"

namespace octet {

struct ExciteQuantizer {
  const QParams* device = nullptr;  ///< in device memory, read when the kernel runs
  kernels::Clamp activation;
};

/// Returns whether cuda_excite_quantize() takes them: x as is_image_channels() says, and a factor of the same type for
/// each of its images and channels.
bool excite_fits(const at::Tensor& x, const at::Tensor& factor);

/// Returns fake_quantize(activation(x * factor)), where the product is rounded to x's type. x, the factor and one bit a
/// value are kept for the backward pass; sums are always added in the same order.
at::Tensor cuda_excite_quantize(const at::Tensor& x, const at::Tensor& factor, const ExciteQuantizer& quantizer);

}  // namespace octet
