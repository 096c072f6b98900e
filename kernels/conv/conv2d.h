// SPDX-License-Identifier: Apache-2.0
// int8 convolution: shape, parameters, the reference that defines its bytes, and the checks that every implementation
// begins with. The arithmetic is that of kernels/core/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/core/codes.h"

namespace octet::kernels {

/// The geometry of one image. Tensors are NHWC; `*_stride` is the distance between neighbouring pixels in elements and
/// is at least the number of channels. pad_h and pad_w are the padding before the first row and column; the padding
/// behind the last follows from the output's size (pad_bottom(), pad_right()).
struct Conv2dShape {
  int in_c = 0, in_h = 0, in_w = 0, in_stride = 0;
  int out_c = 0, out_h = 0, out_w = 0, out_stride = 0;
  int residual_stride = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1,
      groups = 1;
};

/// The constants of a convolution, in host memory and owned by the caller.
struct Conv2dWeights {
  const int8_t* weight = nullptr;     ///< [K, R, S, C/groups]
  const float* multiplier = nullptr;  ///< [K]
  const float* bias = nullptr;        ///< [K]
};

/// How the tensors of a convolution are quantized. With y.float_output, y holds t itself as float32.
struct Conv2dParams {
  CodeInput x;
  CodeOutput y;
  bool has_residual = false;
  CodeInput residual;
  float residual_multiplier = 0;
};

/// Computes one image; this function is the definition. x: codes [H, W, in_stride]; residual: codes [OH, OW,
/// residual_stride] or null; y: codes [OH, OW, out_stride], or float32 with float_output.
void conv2d_int8_reference(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights,
                           const void* x, const void* residual, void* y);

/// Returns how many rows (or columns) the last window reaches beyond the image; negative if it leaves some out.
inline int pad_behind(int in, int out, int kernel, int stride, int pad, int dilation) {
  return (out - 1) * stride + dilation * (kernel - 1) + 1 - in - pad;
}
inline int pad_bottom(const Conv2dShape& g) {
  return pad_behind(g.in_h, g.out_h, g.kernel_h, g.stride_h, g.pad_h, g.dilation_h);
}
inline int pad_right(const Conv2dShape& g) {
  return pad_behind(g.in_w, g.out_w, g.kernel_w, g.stride_w, g.pad_w, g.dilation_w);
}

/// Throws Error(promise) "<who> convolution: <what>" unless `ok`. who: "cpu", "cuda".
void require_conv2d(bool ok, const char* who, const char* what);

/// Throws as require_conv2d() unless sizes, window, groups and strides are valid and all constants are given. An
/// implementation calls this before it packs or runs a convolution, and adds its own limits.
void check_conv2d(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights, const char* who);

}  // namespace octet::kernels
