// SPDX-License-Identifier: Apache-2.0
// Fake quantization y = dequantize(quantize(x)) of activations and weights, and its straight-through gradient.
// Functions of plain arrays compute a thread's share on the CPU and are the definitions; the GPU's give the same bits.
// Arithmetic: kernels/core/quantize.h.
//
// uint16_t stands for bfloat16 (the upper 16 bits of a float): values are widened to float, and y is rounded to the
// nearest bfloat16, ties to even.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"
#include "kernels/training/learned_range.h"

namespace octet::kernels {

/// Fake-quantizes with one scale. mask[i] becomes 1 where the gradient passes, which is where quant_min <= rint(x /
/// scale)
/// + zero_point <= quant_max, else 0 (also for NaN). y may be x; mask may be null.
void fake_quantize(const float* x, size_t count, const QParams& q, float* y, uint8_t* mask);
void fake_quantize(const uint16_t* x, size_t count, const QParams& q, uint16_t* y, uint8_t* mask);

/// Writes dx = dy where mask is 1, else 0. dx may be dy.
void fake_quantize_backward(const float* dy, const uint8_t* mask, size_t count, float* dx);
void fake_quantize_backward(const uint16_t* dy, const uint8_t* mask, size_t count, uint16_t* dx);

/// The quantization of a tensor [outer, channels, inner] with scale[c] for channel c. The other members of QParams are
/// those of `range`.
struct ChannelQuantization {
  const float* scale = nullptr;  ///< [channels]
  size_t channels = 0, inner = 0;
  QParams range;
};

/// A thread's share of the rows, [begin, end). Row r has outer index r / channels, channel r % channels and `inner`
/// values.
struct Rows {
  size_t begin = 0, end = 0;
};

/// Fake-quantizes some rows with a scale for each channel. x, y and mask are the complete tensors.
void fake_quantize(const float* x, const ChannelQuantization& q, Rows rows, float* y, uint8_t* mask);
void fake_quantize(const uint16_t* x, const ChannelQuantization& q, Rows rows, uint16_t* y, uint8_t* mask);

/// Writes quantize(x) for codes that are stored as int8.
void quantize_to_int8(const float* x, size_t count, const QParams& q, int8_t* codes);

/// Returns the sum of (dequantize(quantize(x)) - x)^2 in double, added in a fixed order.
double squared_error(const float* x, size_t count, const QParams& q);

/// rint(x / scale) for many x and one scale, mostly without a division. The estimate e = x * (1 / scale) differs from
/// the quotient by less than 2^-22 |e|, so both round to the same integer unless e is that near to halfway between two.
/// There (about one value in ten thousand), and for NaN, infinity, huge quotients and extreme scales, `sure` becomes
/// false and the caller divides. For host and device.
struct RoundedQuotient {
  float scale, inverse;

  OCTET_HOST_DEVICE explicit RoundedQuotient(float scale)
      : scale(scale), inverse(scale < 0x1p100f ? 1.0f / scale : NAN) {}  // a subnormal inverse would be too coarse

  OCTET_HOST_DEVICE float estimate(float x, bool& sure) const {
    constexpr float kRound = 0x1.8p23f;  // adding it leaves no bits for fractions
    const float e = x * inverse;
    const float rounded = (e + kRound) - kRound;
    sure = sure && fabsf(e - rounded) < fmaf(fabsf(e), -0x1p-22f, 0.5f);
    return rounded;
  }
  /// Returns x / scale, given x * inverse. Where that is at least a quarter it is what IEEE division gives: the
  /// estimate is within an ulp, the remainder exact and the inverse rounded correctly (Markstein, "Computation of
  /// elementary functions on the IBM RISC System/6000 processor", 1990). Smaller ones round to 0 all the same. If the
  /// estimate is infinite or NaN, so is the result, but perhaps not with its sign.
  OCTET_HOST_DEVICE float corrected(float x, float estimate) const {
    return fmaf(fmaf(-estimate, scale, x), inverse, estimate);
  }
  OCTET_HOST_DEVICE float exact(float x) const { return rintf(x / scale); }

  OCTET_HOST_DEVICE float operator()(float x) const {
    bool sure = true;
    const float rounded = estimate(x, sure);
    return sure ? rounded : exact(x);
  }
};

/// A LearnedRange in device memory, read when a kernel runs.
struct LearnedPointers {
  RangeRule rule = RangeRule::lsq;
  const float* value = nullptr;   ///< null: the range is not trained
  const float* offset = nullptr;  ///< with lsq_plus

  OCTET_HOST_DEVICE bool any() const { return value != nullptr; }
  OCTET_HOST_DEVICE LearnedRange range() const { return {rule, *value, offset != nullptr ? *offset : 0}; }
};

/// The gradients of a learned range on the GPU. The kernels that read every dy anyway write partial sums, one per
/// block; cuda_sum_scale_gradient() adds them up in a fixed order. All pointers are on the device.
struct ScaleGradient {
  RangeRule rule = RangeRule::lsq;
  const int16_t* slopes = nullptr;  ///< [count], written by cuda_fake_quantize()
  float* parts = nullptr;           ///< scratch [sums(), blocks]
  float* dscale = nullptr;          ///< written: the gradient of LearnedRange::value; null: the range is not trained
  float* doffset = nullptr;         ///< written; null: there is no offset
  long values = 1;                  ///< N of learned_range.h
  const QParams* device_qparams = nullptr;  ///< codes and zero point, read when the kernel runs; null: `qparams`
  QParams qparams;

  /// Returns how many gradients are computed: 0, 1 (dscale) or 2.
  int sums() const { return (dscale != nullptr ? 1 : 0) + (doffset != nullptr ? 1 : 0); }
  OCTET_HOST_DEVICE EndSlopes ends() const {
    return EndSlopes(rule, dscale != nullptr && device_qparams != nullptr ? *device_qparams : qparams);
  }
};

/// Writes the sum of parts[0 .. count) to *dscale and that of parts[count .. 2 count) to *doffset, each times
/// range_gradient_factor().
void cuda_sum_scale_gradient(const ScaleGradient& work, int count, CudaStream stream);

/// Fake quantization of an activation on the GPU, in one pass over memory. All pointers are on the device. Without bias
/// the layout does not matter.
struct FakeQuantization {
  const void* x = nullptr;  ///< [count]
  void* y = nullptr;        ///< [count]; may be x
  /// [ceil(count / 8)] or null. Bit i % 8 of byte i / 8 is set where the gradient of value i passes both the activation
  /// and the quantizer.
  uint8_t* bits = nullptr;
  long count = 0;
  ValueType type = ValueType::float32;
  /// Added to x first, in float: bias[i % channels] (channels-last memory), then residual[i]; either may be null.
  const float* bias = nullptr;
  int channels = 1;
  const void* residual = nullptr;  ///< [count], of x's type
  Clamp activation;
  const QParams* device_qparams = nullptr;  ///< read when the kernel runs; null: `qparams`
  QParams qparams;
  LearnedPointers learned;    ///< replaces the scale and zero point of those
  int16_t* slopes = nullptr;  ///< [count] or null: written for ScaleGradient
};

/// Writes y = dequantize(quantize(activation(x + bias + residual))).
void cuda_fake_quantize(const FakeQuantization& work, CudaStream stream);

struct FakeQuantizationGradient {
  const void* dy = nullptr;       ///< [count]
  const uint8_t* bits = nullptr;  ///< written by cuda_fake_quantize()
  void* dx = nullptr;             ///< [count]; may be dy
  long count = 0;
  ValueType type = ValueType::float32;
  ScaleGradient scale;  ///< with parts for fake_quantize_backward_parts(count) blocks
};

/// Returns the number of blocks of cuda_fake_quantize_backward().
int fake_quantize_backward_parts(long count);

/// Writes dx = dy where the bit is set, else 0, and computes the gradients of the range in the same pass.
void cuda_fake_quantize_backward(const FakeQuantizationGradient& work, CudaStream stream);

/// The gradient through fake quantization and that of the bias, in one pass over memory. All pointers are on the
/// device; memory is channels-last.
struct BiasGradient {
  const void* dy = nullptr;       ///< [rows, channels]
  const uint8_t* bits = nullptr;  ///< written by cuda_fake_quantize()
  void* dx = nullptr;             ///< [rows, channels]; may be dy
  float* parts = nullptr;         ///< scratch [bias_gradient_parts(rows, channels), channels]
  float* dbias = nullptr;         ///< [channels]
  long rows = 0;
  int channels = 0;
  ValueType type = ValueType::float32;
  ScaleGradient scale;  ///< with parts for bias_gradient_scale_parts(rows, channels) blocks
  /// If given, read instead of bits: the gradient passes where code_below < code < code_above. Then no range is
  /// trained.
  const uint8_t* codes = nullptr;  ///< [rows, code_stride], as engines store them
  int code_stride = 0;
  bool signed_codes = false;
  int32_t code_below = 0, code_above = 0;
  const void* also = nullptr;  ///< with codes: [rows, channels] or null, another gradient, added to dy first
};

/// Return into how many parts the rows are split, and the number of blocks of cuda_bias_gradient().
int bias_gradient_parts(long rows, int channels);
int bias_gradient_scale_parts(long rows, int channels);

/// Writes dx = dy where the gradient passes, else 0, and dbias = the sum of dx's rows, added in a fixed order. Computes
/// the gradients of the range in the same pass.
void cuda_bias_gradient(const BiasGradient& work, CudaStream stream);

}  // namespace octet::kernels
