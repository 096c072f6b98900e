// Fake quantization of CUDA tensors with straight-through gradients. Nothing here waits for the GPU or allocates
// outside LibTorch's allocator, so that steps can be captured in a CUDA graph. Not in a build
// without CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "kernels/activation.h"
#include "kernels/fake_quantize/cuda_quantize_weights.h"
#include "kernels/quantize.h"
#include "src/qat/learned_edge.h"

namespace octet {

struct TensorQuantizer {
  const QParams* device = nullptr;  ///< in device memory, read when the kernel runs; null: `qparams`
  QParams qparams;
  LearnedEdge learned;        ///< in place of the qparams' where it is defined
  kernels::Clamp activation;  ///< applied first
  bool in_place = false;      ///< x is overwritten: no view, no leaf, and no backward may need its values
  /// If there is one: sees x + bias + residual, dense, before anything is quantized. They are then added up in passes
  /// of their own.
  std::function<void(const at::Tensor& sum)> observe;
};

/// y = fake_quantize(activation(x)) in x's type (float32, float16, bfloat16) and layout. For the gradient one bit a
/// value is kept, two bytes more where the range learns, and nothing without gradients.
at::Tensor cuda_fake_quantize(const at::Tensor& x, const TensorQuantizer& quantizer);

/// y = fake_quantize(activation(x + bias + residual)); bias float [C] and residual may be undefined. One pass forward
/// and one backward where x is channels-last and the residual lies as x does; other layouts are added up before. The
/// gradients of x and the residual are one tensor; a channel's gradients are always added in the same order.
at::Tensor cuda_fake_quantize(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                              const TensorQuantizer& quantizer);

/// The type convolutions and linears will run in: autocast's, or float32.
at::ScalarType autocast_type();

struct WeightQuantizer {
  kernels::WeightRules rules;      ///< but for their type
  std::vector<WeightCodes> codes;  ///< one a weight
  /// Float [all channels of all weights]: written, or read where they are given. If those require a gradient, they
  /// learn.
  at::Tensor scales;
  at::Tensor not_finite;          ///< int32 [weights], sticky; may be undefined where scales are given
  std::vector<at::Tensor> gains;  ///< float [K] each; of some weights, in their order
  std::vector<bool> has_gain;     ///< by weight; empty: none has one
};

/// All weights [K, ...], float32, contiguous or channels-last, fake-quantized in `type`, times their gain, in one
/// launch; so are their gradients. The product is rounded to `type` once; codes are those of the weight without gain.
std::vector<at::Tensor> cuda_quantize_weights(const std::vector<at::Tensor>& weights, const WeightQuantizer& quantizer,
                                              at::ScalarType type);

}  // namespace octet
