// Images made larger by whole factors, with straight lines between the centres of pixels (half-pixel centres, as ONNX's
// Resize and PyTorch's interpolate without align_corners). The reference is the definition; arithmetic: quantize.h.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// One image, NHWC; `*_stride` is the distance in elements between neighbouring pixels (>= channels). The output has
/// in_h * factor_h x in_w * factor_w pixels.
struct BilinearShape {
  int channels = 0;
  int in_h = 0, in_w = 0, in_stride = 0;
  int out_stride = 0;
  int factor_h = 1, factor_w = 1;
  int out_h() const { return in_h * factor_h; }
  int out_w() const { return in_w * factor_w; }
};

/// t = float(sum over four pixels of (xq - zx) * row weight * column weight) * multiplier. The weights of all four add
/// up to 4 * factor_h * factor_w, by which the multiplier divides; for factors without fault (src/graph/window.h) the
/// sum stays below 2^24, where float32 holds it exactly.
struct BilinearParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

/// The two rows (or columns) of the input that a row of the output lies between, and their weights, which add up to
/// 2 * factor. Beyond the centre of the first and the last both are the same.
struct BilinearTaps {
  int first, second;
  int32_t first_weight, second_weight;
};

/// Output pixel `out` has its centre at (out + 1/2) / factor - 1/2 of the input: `place` in units of 1 / (2 factor).
OCTET_HOST_DEVICE inline BilinearTaps bilinear_taps(int out, int factor, int in_size) {
  const int place = 2 * out + 1 - factor;
  if (place < 0) return {0, 0, 2 * factor, 0};
  const int first = place / (2 * factor), beyond = place % (2 * factor);
  return {first, first + 1 < in_size ? first + 1 : first, 2 * factor - beyond, beyond};
}

void bilinear_int8_reference(const BilinearShape& shape, const BilinearParams& params, const void* x, void* y);

}  // namespace octet::kernels
