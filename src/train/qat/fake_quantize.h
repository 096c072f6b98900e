// SPDX-License-Identifier: Apache-2.0
// Fake quantization where the tensor is: y = dequantize(quantize(x)), with straight-through gradients. On the CPU by
// kernels/training/fake_quantize.h, on a GPU by the functions cuda_* below, which are in builds with CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "kernels/core/quantize.h"
#include "kernels/training/learned_range.h"
#include "kernels/training/weights.h"
#include "src/quant/calibrate.h"

namespace octet {

/// Returns x, float32, bfloat16 or float16 of any shape, fake-quantized per tensor, in its type and memory layout. The
/// gradient is the output's where the code was not clamped, and 0 elsewhere (Bengio et al. 2013; Jacob et al. 2018).
/// For it one byte a value is kept (one bit on a GPU); nothing without gradients.
at::Tensor fake_quantize(const at::Tensor& x, const QParams& qparams);

/// Returns a weight [K, ...] fake-quantized with one scale a channel. On a GPU it must be float32, and the scales are
/// copied there.
at::Tensor fake_quantize_weight(const at::Tensor& weight, const std::vector<float>& scales, const WeightCodes& codes);

/// Returns a weight fake-quantized with scales that learn (kernels/training/learned_range.h), float [K] where the
/// weight is. The weight is kept for their gradient.
at::Tensor learned_fake_quantize_weight(const at::Tensor& weight, const at::Tensor& scales, const WeightCodes& codes);

// Activations whose range learns (kernels/training/learned_range.h).

/// What learns of an edge, float scalars where its values are; undefined: nothing.
struct LearnedEdge {
  at::Tensor value;   ///< scale
  at::Tensor offset;  ///< for lsq_plus
  kernels::RangeRule rule = kernels::RangeRule::lsq;

  bool defined() const { return value.defined(); }
};

/// Returns the rule of scales that learn; lsq for others.
kernels::RangeRule rule_of(EdgeScales scales);

/// Returns the edges of a network from values and offsets, float [nodes] each or undefined.
std::vector<LearnedEdge> learned_edges(const at::Tensor& values, const at::Tensor& offsets, EdgeScales scales,
                                       size_t nodes);

/// Returns x [N, ...], N images, fake-quantized with scale and zero point from `learned` instead of the qparams'. The
/// rest is as in fake_quantize(); for the gradients of what learns x is kept too (two bytes a value on a GPU).
at::Tensor learned_fake_quantize(const at::Tensor& x, const LearnedEdge& learned, const QParams& qparams);

// On CUDA tensors. Nothing here waits for the GPU or allocates outside of LibTorch's allocator, so that steps can be
// captured in a CUDA graph.

struct TensorQuantizer {
  const QParams* device = nullptr;  ///< in device memory, read when the kernel runs; null: `qparams`
  QParams qparams;
  LearnedEdge learned;        ///< if defined, replaces the scale and zero point of the qparams
  kernels::Clamp activation;  ///< applied first
  bool in_place = false;      ///< overwrites x, which must be no view and no leaf, nor needed by a backward pass
  /// If given, sees x + bias + residual, dense, before it is quantized. The sum then takes passes of its own.
  std::function<void(const at::Tensor& sum)> observe;
};

/// Returns fake_quantize(activation(x)) in x's type (float32, float16, bfloat16) and layout. For the gradient one bit a
/// value is kept, and two bytes more if the range learns; nothing without gradients.
at::Tensor cuda_fake_quantize(const at::Tensor& x, const TensorQuantizer& quantizer);

/// Returns fake_quantize(activation(x + bias + residual)), where bias float [C] and residual may be undefined. Takes
/// one pass forward and one backward if x is channels-last and the residual has its strides; other layouts are summed
/// before. The gradients of x and residual are one tensor; a channel's gradients are always summed in the same order.
at::Tensor cuda_fake_quantize(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                              const TensorQuantizer& quantizer);

struct WeightQuantizer {
  kernels::WeightRules rules;      ///< their type is not read
  std::vector<WeightCodes> codes;  ///< by weight
  /// Float [all channels of all weights]: written, or read if the rule says that they are given. Those learn if they
  /// require a gradient.
  at::Tensor scales;
  at::Tensor not_finite;          ///< int32 [weights], only ever set; may be undefined if scales are given
  std::vector<at::Tensor> gains;  ///< float [K] each, for the weights that has_gain names, in their order
  std::vector<bool> has_gain;     ///< by weight; empty: no weight has a gain
};

/// Returns all weights [K, ...], float32, contiguous or channels-last, fake-quantized and multiplied by their gain, in
/// `type`. Forward and backward take one launch each. The product is rounded to `type` once; codes are those of the
/// weight without gain.
std::vector<at::Tensor> cuda_quantize_weights(const std::vector<at::Tensor>& weights, const WeightQuantizer& quantizer,
                                              at::ScalarType type);

}  // namespace octet
