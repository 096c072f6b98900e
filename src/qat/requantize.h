// The rounding rule of kernels/requantize over tensors of centred codes: float32 [N, C, H, W] in channels-last memory,
// on the CPU or a GPU. Results are new tensors of that kind on the same device.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/requantize/requantize.h"

namespace octet {

at::Tensor nhwc(const at::Tensor& x);  ///< in channels-last memory: x itself if it is

/// What follows the sums of a convolution or linear.
struct RequantizeRule {
  at::Tensor multiplier, bias;  ///< float32 [K] on the device
  float residual_multiplier = 0;
  kernels::Rounding rounding;
};

/// acc: float32 or float64 [N, K, H, W] of integers within int32; residual: like the output, or undefined.
at::Tensor requantize(const RequantizeRule& epilogue, const at::Tensor& acc, const at::Tensor& residual);

/// x: centred codes, or float32 sums of them.
at::Tensor rescale_codes(const kernels::RescaleRule& rule, const at::Tensor& x);

at::Tensor add_codes(const kernels::AddRule& rule, const at::Tensor& a, const at::Tensor& b);

/// uint8: the stored bytes (int8 or uint8) of centred codes.
at::Tensor store_codes(int32_t zero_point, const at::Tensor& centred);

/// uint8: the stored bytes of quantize(x).
at::Tensor quantize_values(const QParams& qparams, const at::Tensor& x);

}  // namespace octet
