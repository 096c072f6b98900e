// int8 convolution: shapes, parameters and the reference, which is the definition. Arithmetic: kernels/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// One image's geometry; all tensors NHWC, `*_stride` is the distance in bytes (elements) between neighbouring pixels
/// (>= channels).
struct Conv2dShape {
  int in_c = 0, in_h = 0, in_w = 0, in_stride = 0;
  int out_c = 0, out_h = 0, out_w = 0, out_stride = 0;
  int residual_stride = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1,
      groups = 1;
};

/// The constants of a convolution, in memory of the host; not owned.
struct Conv2dWeights {
  const int8_t* weight = nullptr;     ///< [K, R, S, C/groups]
  const float* multiplier = nullptr;  ///< [K]
  const float* bias = nullptr;        ///< [K]
};

/// The edges of a convolution. With y.float_output y is float32 [out_c] a pixel: t itself.
struct Conv2dParams {
  CodeInput x;
  CodeOutput y;
  bool has_residual = false;
  CodeInput residual;
  float residual_multiplier = 0;
};

/// The definition: one image. x: codes [H, W, in_stride]; residual: codes [OH, OW, residual_stride] or null;
/// y: codes [OH, OW, out_stride] (float32 with float_output).
void conv2d_int8_reference(const Conv2dShape& shape, const Conv2dParams& params, const Conv2dWeights& weights,
                           const void* x, const void* residual, void* y);

}  // namespace octet::kernels
