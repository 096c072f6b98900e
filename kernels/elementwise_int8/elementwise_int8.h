// Operators on one pixel at a time: add, mul and requantize (a concat is one requantize an input, each with its own
// part of the output's channels). The reference is the definition; arithmetic: kernels/quantize.h.
#pragma once

#include <cstdint>

#include "kernels/codes.h"

namespace octet::kernels {

/// Tensors [pixels, channels]; `*_stride` is the distance in elements between neighbouring pixels (>= channels).
struct ElementwiseShape {
  int pixels = 0, channels = 0;
  int x_stride = 0, other_stride = 0, y_stride = 0;
  bool y_is_slice = false;      ///< y is some channels of a wider tensor: only `channels` of each pixel may be written
  bool other_is_pixel = false;  ///< other is one pixel [channels] an image, for all pixels of x
};

/// t = float(xq - zx) * multiplier
struct RequantizeParams {
  CodeInput x;
  float multiplier = 0;
  CodeOutput y;
};

/// t = float(xq - zx) * x_multiplier; t = fma(float(oq - zo), other_multiplier, t)
struct AddParams {
  CodeInput x, other;
  float x_multiplier = 0, other_multiplier = 0;
  CodeOutput y;
};

/// t = float((xq - zx) * (oq - zo)) * multiplier
struct MulParams {
  CodeInput x, other;
  float multiplier = 0;
  CodeOutput y;
};

void requantize_int8_reference(const ElementwiseShape& shape, const RequantizeParams& params, const void* x, void* y);
void add_int8_reference(const ElementwiseShape& shape, const AddParams& params, const void* x, const void* other,
                        void* y);
void mul_int8_reference(const ElementwiseShape& shape, const MulParams& params, const void* x, const void* other,
                        void* y);

}  // namespace octet::kernels
