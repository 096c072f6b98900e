// int8 convolution: shapes, parameters and the reference, which is the definition. Arithmetic: kernels/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/quantize.h"

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

/// What a convolution does with its accumulators; pointers are not owned and outlive the kernel.
struct Conv2dParams {
  const int8_t* weight = nullptr;     ///< [K, R, S, C/groups]
  const float* multiplier = nullptr;  ///< [K]
  const float* bias = nullptr;        ///< [K]
  int32_t x_zero_point = 0;
  bool x_signed = false;
  int32_t out_zero_point = 0, clamp_min = 0, clamp_max = 255;
  bool out_signed = false;
  bool float_output = false;  ///< y is float32 [out_c] a pixel: t itself
  bool has_residual = false;
  int32_t residual_zero_point = 0;
  bool residual_signed = false;
  float residual_multiplier = 0;
};

/// The definition: one image. x: codes [H, W, in_stride]; residual: codes [OH, OW, residual_stride] or null;
/// y: codes [OH, OW, out_stride] (float32 when float_output).
void conv2d_int8_reference(const Conv2dShape& shape, const Conv2dParams& params, const void* x, const void* residual,
                           void* y);

}  // namespace octet::kernels
