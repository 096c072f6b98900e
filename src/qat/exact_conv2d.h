// Convolutions and products of codes that LibTorch's operators compute exactly, on the CPU and on a GPU.
//
// Codes and their sums are integers, so floating point is exact as long as every intermediate sum fits its mantissa:
// 2^24 in float32, 2^53 in float64, in any order of addition. That holds for operators that add products of inputs and
// nothing else. Winograd and FFT convolutions do not, nor does rounding to TF32, so libraries that choose among such
// algorithms by themselves (NNPACK, cuDNN) are not asked.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/graph/graph.h"

namespace octet {

/// The type in which sums over codes [K, ...] of a weight times inputs of magnitude up to `reach` are exact: float32
/// where they stay under 2^24, else float64.
at::ScalarType exact_type(const at::Tensor& weight_codes, double reach);

/// x: centred codes float32 [N, C, H, W]; weight: codes [K, C / groups, R, S] in their exact type. Returns the sums [N,
/// K, OH, OW] in weight's type, channels-last. On a GPU call it under FullPrecision (src/model/device.h).
///   CPU: oneDNN's direct and GEMM convolutions, by at::conv2d with NNPACK switched off.
///   GPU: depthwise by ATen's own kernel, which adds products in a loop; all others by column_conv2d.
at::Tensor exact_conv2d(const at::Tensor& x, const at::Tensor& weight, const Window& window, int groups);

/// x: [N, C]; weight: codes [K, C] in their exact type. Returns [N, K] in weight's type.
at::Tensor exact_linear(const at::Tensor& x, const at::Tensor& weight);

/// The same as exact_conv2d on any device: the inputs under each output side by side, then one matrix product a group
/// (im2col; Chellapilla et al. 2006). Works through the images in parts, so that the copies stay small.
at::Tensor column_conv2d(const at::Tensor& x, const at::Tensor& weight, const Window& window, int groups);

}  // namespace octet
