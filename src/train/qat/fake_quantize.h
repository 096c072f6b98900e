// SPDX-License-Identifier: Apache-2.0
// Fake quantization where the tensor is: y = dequantize(quantize(x)), with straight-through gradients. On the CPU by
// kernels/training/fake_quantize.h, on a GPU by cuda_fake_quantize.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/core/quantize.h"
#include "kernels/training/learned_range.h"
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

}  // namespace octet
