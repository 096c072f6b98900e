// Max and average pooling over codes. The reference is the definition; arithmetic: kernels/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// One image, NHWC; `*_stride` is the distance in elements between neighbouring pixels (>= channels). Global pooling
/// is a window of the image's size. pad_h, pad_w lie before the first row and column; how far windows reach behind the
/// last follows from the output's size.
struct PoolShape {
  int channels = 0;
  int in_h = 0, in_w = 0, in_stride = 0;
  int out_h = 0, out_w = 0, out_stride = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
};

/// y = min(clamp_max, max(clamp_min, codes of the window)): padding never wins, and both edges share their qparams.
struct MaxPoolParams {
  bool is_signed = false;
  int32_t clamp_min = 0, clamp_max = 255;
};

/// t = float(sum over the window of (xq - zx)) * multiplier; padding adds 0.
struct AvgPoolParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

void max_pool_int8_reference(const PoolShape& shape, const MaxPoolParams& params, const void* x, void* y);
void avg_pool_int8_reference(const PoolShape& shape, const AvgPoolParams& params, const void* x, void* y);

}  // namespace octet::kernels
