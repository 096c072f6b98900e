// SPDX-License-Identifier: Apache-2.0
// The QAT graph's arithmetic on codes, by LibTorch's operators and on the CPU or a GPU: sums that are exact, then the
// rounding rule (kernels/training/qat_epilogue.h).
//
// Codes and their sums are integers, so floating point is exact as long as every intermediate sum fits its mantissa:
// 2^24 in float32, 2^53 in float64, in any order of addition. That holds for operators that add products of inputs and
// nothing else. Winograd and FFT convolutions do other things, and TF32 rounds; therefore libraries that choose among
// such algorithms (NNPACK, cuDNN) are not used.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/training/qat_epilogue.h"
#include "src/net/graph.h"

namespace octet {

/// Returns the type in which sums of a weight's codes [K, ...] times inputs of magnitude up to `reach` are exact:
/// float32 if they stay under 2^24, else float64.
at::ScalarType exact_type(const at::Tensor& weight_codes, double reach);

/// Returns the sums [N, K, OH, OW] in weight's type, channels-last. x: centred codes float32 [N, C, H, W]; weight:
/// codes [K, C / groups, R, S] in their exact type. On a GPU to be called under FullPrecision
/// (src/train/model/device.h).
///   CPU: oneDNN's direct and GEMM convolutions, by at::conv2d with NNPACK switched off.
///   GPU: depthwise by ATen's own kernel, which adds products in a loop; all others by column_conv2d.
at::Tensor exact_conv2d(const at::Tensor& x, const at::Tensor& weight, const Window& window, int groups);

/// Returns the sums [N, K] in weight's type. x: [N, C]; weight: codes [K, C] in their exact type.
at::Tensor exact_linear(const at::Tensor& x, const at::Tensor& weight);

/// Returns what exact_conv2d does, on any device, by one matrix product a group over copies of the inputs of each
/// output (im2col; Chellapilla et al. 2006). Divides the images so that the copies stay small.
at::Tensor column_conv2d(const at::Tensor& x, const at::Tensor& weight, const Window& window, int groups);

// The rounding rule over centred codes, float32 [N, C, H, W]. Results are new tensors in channels-last memory, float32
// unless said otherwise.

at::Tensor nhwc(const at::Tensor& x);  ///< x in channels-last memory: itself if it is

/// What follows the sums of a convolution or linear.
struct RequantizeRule {
  at::Tensor multiplier, bias;  ///< float32 [K] on the device
  float residual_multiplier = 0;
  kernels::Rounding rounding;
};

/// Returns codes from sums: float32 or float64 [N, K, H, W] of integers within int32. residual: like the result, or
/// undefined.
at::Tensor requantize(const RequantizeRule& epilogue, const at::Tensor& acc, const at::Tensor& residual);

/// Returns codes of another scale from codes, or from float32 sums of them.
at::Tensor rescale_codes(const kernels::RescaleRule& rule, const at::Tensor& x);

at::Tensor add_codes(const kernels::AddRule& rule, const at::Tensor& a, const at::Tensor& b);

/// Returns uint8: the bytes, int8 or uint8, in which engines store centred codes.
at::Tensor store_codes(int32_t zero_point, const at::Tensor& centred);

/// Returns uint8: the bytes in which engines store quantize(x).
at::Tensor quantize_values(const QParams& qparams, const at::Tensor& x);

}  // namespace octet
