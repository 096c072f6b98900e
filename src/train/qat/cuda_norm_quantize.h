// SPDX-License-Identifier: Apache-2.0
// BatchNorm in training and the quantizer behind it as one operator on CUDA tensors, in builds with CUDA. Nothing here
// waits for the GPU or allocates outside of LibTorch's allocator, so that steps can be captured in a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "kernels/core/quantize.h"
#include "kernels/training/norm_quantize.h"
#include "src/net/graph.h"
#include "src/train/model/model.h"

namespace octet {

struct NormQuantizer {
  kernels::EdgeQuantizer* edge = nullptr;  ///< in device memory
  bool observe = false;                    ///< its range first follows what is quantized
  kernels::Clamp activation;
  double epsilon = kBatchNormEpsilon;
  const kernels::FunctionTable* function = nullptr;  ///< in device memory, or null. Then the range is not observed
};

/// Returns whether cuda_norm_quantize() takes y: float16 or bfloat16, channels-last with channels in eights, at least
/// two values a channel, no bias, and a residual, if there is one, of the same kind.
bool norm_quantize_fits(const Unfinished& y);

/// Two tensors of the same memory. Their readers' gradients are added in the backward pass of what made them, where one
/// tensor's would be added in a pass of their own.
struct Twins {
  at::Tensor first, second;
  std::function<at::Tensor()> again;  ///< makes them once more, for who has not kept them; null with a residual
};

/// Returns fake_quantize(activation(batch_norm(y.value) + y.residual)) in training, and moves the running statistics as
/// at::batch_norm() does. BatchNorm's result is rounded to its type, the sum is not. y.value is kept for the backward
/// pass, and one bit a value; sums are always added in the same order. With a function, which takes no residual, its
/// table gives the results instead.
Twins cuda_norm_quantize(const Unfinished& y, const BatchNormTensors& batch_norm, const NormQuantizer& quantizer);

/// Lets the backward pass of the convolution that gave y call `again` for the convolution's input, x, in place of
/// keeping it. Returns false, and does nothing, where y is no convolution's result in a walk with gradients, or where
/// the convolution multiplied something else than x, as with uneven padding.
bool make_input_again(const at::Tensor& y, const at::Tensor& x, std::function<at::Tensor()> again);

/// Returns, by node, whether make_input_again() may take it: one convolution alone reads it, as what it multiplies, and
/// does not first copy it into a frame of uneven padding.
std::vector<bool> can_be_made_again(const Graph& graph);

}  // namespace octet
