// Fake quantization with straight-through gradients, on kernels/fake_quantize, where the tensor is.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/fake_quantize/weight_codes.h"
#include "kernels/quantize.h"

namespace octet {

/// y = dequantize(quantize(x)), per tensor; float32, bfloat16 or float16, any shape. y has x's type and memory layout.
/// The gradient is the output's where the code was not clamped and 0 elsewhere (Bengio et al. 2013; Jacob et al. 2018);
/// only a byte a value is kept for it (a bit on the GPU), and none without gradients.
at::Tensor fake_quantize(const at::Tensor& x, const QParams& qparams);

/// The same for a weight [K, ...] with one scale a channel. On the GPU: float32; the scales are copied there.
at::Tensor fake_quantize_weight(const at::Tensor& weight, const std::vector<float>& scales, const WeightCodes& codes);

/// The same with scales that learn (kernels/fake_quantize/learned_scale.h): float [K], where the weight is. For the
/// gradient the weight is kept. Activations: learned_edge.h.
at::Tensor learned_fake_quantize_weight(const at::Tensor& weight, const at::Tensor& scales, const WeightCodes& codes);

}  // namespace octet
