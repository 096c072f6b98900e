// Fake quantization of activations whose range learns (kernels/fake_quantize/learned_range.h), where the tensor is.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/fake_quantize/learned_range.h"
#include "src/quant/calibrator.h"

namespace octet {

/// What of an edge learns, as float scalars where its values are. Undefined: nothing.
struct LearnedEdge {
  at::Tensor value;   ///< scale or, of pact, width
  at::Tensor offset;  ///< of lsq_plus
  kernels::RangeRule rule = kernels::RangeRule::lsq;

  bool defined() const { return value.defined(); }
};

/// Of scales that learn (calibrator.h); lsq for the others.
kernels::RangeRule rule_of(EdgeScales scales);

/// The rows of a network's: values and offsets float [nodes], or undefined, then of undefined tensors.
std::vector<LearnedEdge> learned_edges(const at::Tensor& values, const at::Tensor& offsets, EdgeScales scales,
                                       size_t nodes);

/// y = dequantize(quantize(x)) with the range that `learned` gives the edge: scale and zero point in place of the
/// qparams', where they learn. Types, layouts and what is kept for x's gradient as in fake_quantize(); for the others x
/// is kept (two bytes a value on the GPU). x: [N, ...], N pictures.
at::Tensor learned_fake_quantize(const at::Tensor& x, const LearnedEdge& learned, const QParams& qparams);

}  // namespace octet
