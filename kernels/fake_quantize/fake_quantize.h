// Fake quantization: y = dequantize(quantize(x)) and the straight-through gradient, as loops over plain arrays. Each
// call is one thread's share: callers split ranges or rows among threads. kernels/quantize.h has the arithmetic.
//
// bfloat16 values are their upper 16 bits in a uint16_t. They are widened to float, and y is rounded to the nearest
// bfloat16 (ties to even).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantize.h"

namespace octet::kernels {

/// Per tensor. mask[i] is 1 where quant_min <= rint(x / scale) + zero_point <= quant_max (0 for NaN), else 0: there the
/// gradient passes. y may be x; mask may be null.
void fake_quantize(const float* x, size_t count, const QParams& q, float* y, uint8_t* mask);
void fake_quantize(const uint16_t* x, size_t count, const QParams& q, uint16_t* y, uint8_t* mask);

/// dx = dy where mask is 1, else 0. dx may be dy.
void fake_quantize_backward(const float* dy, const uint8_t* mask, size_t count, float* dx);
void fake_quantize_backward(const uint16_t* dy, const uint8_t* mask, size_t count, uint16_t* dx);

/// Sum of dy times dy/ds of learned_scale.h, in double, always added in the same order.
double scale_gradient(const float* x, const float* dy, size_t count, const QParams& q);
double scale_gradient(const uint16_t* x, const uint16_t* dy, size_t count, const QParams& q);

/// A tensor [outer, channels, inner] in which channel c has scale[c]; zero_point, quant_min and quant_max are those of
/// `range`, whose scale is not used.
struct ChannelQuantization {
  const float* scale = nullptr;  ///< [channels]
  size_t channels = 0, inner = 0;
  QParams range;
};

/// Half-open range of rows; row r is outer index r / channels, channel r % channels, `inner` values long.
struct Rows {
  size_t begin = 0, end = 0;
};

/// Per channel, for some rows. x, y and mask point at the whole tensor.
void fake_quantize(const float* x, const ChannelQuantization& q, Rows rows, float* y, uint8_t* mask);
void fake_quantize(const uint16_t* x, const ChannelQuantization& q, Rows rows, uint16_t* y, uint8_t* mask);

/// sum (dequantize(quantize(x)) - x)^2 in double, always added in the same order.
double squared_error(const float* x, size_t count, const QParams& q);

}  // namespace octet::kernels
