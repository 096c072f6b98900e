// Softmax over groups of channels, of codes: whole exponentials from a table, an exact sum, one division. The reference
// is the definition; arithmetic: quantize.h.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// `*_stride` is the distance in elements between neighbouring pixels (>= groups * channels).
struct SoftmaxShape {
  int pixels = 0;
  int groups = 1, channels = 0;  ///< of a group
  int x_stride = 0, y_stride = 0;
};

/// e = exponential[largest code of the group - code]; t = float(e) / float(sum of e over the group) * multiplier, the
/// quotient and the product each rounded once. The first exponential is above 0 and no sum leaves int32
/// (src/graph/validate.cpp).
struct SoftmaxParams {
  int32_t exponential[256] = {};
  bool x_is_signed = false;
  float multiplier = 0;
  CodeOutput y;
};

/// One image.
void softmax_int8_reference(const SoftmaxShape& shape, const SoftmaxParams& params, const void* x, void* y);

}  // namespace octet::kernels
