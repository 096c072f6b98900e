// SPDX-License-Identifier: Apache-2.0
// The rounding rule of octet. Every quantizer, engine, kernel and test calls these functions or reproduces them bit for
// bit. All functions are for host and device code.
//
//   real = scale * (q - zero_point)
//   quantize    q = clamp(rint(x / scale) + zero_point)                          IEEE division, round half to even
//   requantize  y = clamp(rint(fma(float(acc), multiplier, bias)) + zero_point)  one fma, float32
//   ReLU is the lower bound of the clamp. The clamp happens in float, before the conversion to an integer.
//
// Worked numbers: scale 0.5, zero_point 3, range [0, 255]:
//   quantize(1.25) = rint(2.5) + 3 = 2 + 3 = 5;  quantize(1.75) = rint(3.5) + 3 = 7;  quantize(-9) = clamp(-15) = 0
//   requantize(acc = 7, multiplier 0.5, bias -1, zero_point 3) = rint(2.5) + 3 = 5
//
// Compile with -ffp-contract=off: a contracted multiply-add elsewhere would change codes.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define OCTET_HOST_DEVICE __host__ __device__
#else
#define OCTET_HOST_DEVICE
#endif

namespace octet {

/// How one tensor maps real values to codes. Codes are stored as int8 when quant_min < 0, else as uint8.
struct QParams {
  float scale = 1.0f;        ///< > 0 and finite
  int32_t zero_point = 0;    ///< the code of real 0, within [quant_min, quant_max]
  int32_t quant_min = -128;  ///< the lowest code
  int32_t quant_max = 127;   ///< the highest code
  OCTET_HOST_DEVICE bool is_signed() const { return quant_min < 0; }
  bool operator==(const QParams&) const = default;
};

/// Returns `rounded`, clamped to [lo, hi] in float and then converted; NaN becomes `lo`.
OCTET_HOST_DEVICE inline int32_t clamp_code(float rounded, int32_t lo, int32_t hi) {
  const float low = static_cast<float>(lo), high = static_cast<float>(hi);
  const float raised = rounded > low ? rounded : low;  // a comparison with NaN is false; fmaxf would not vectorize
  return static_cast<int32_t>(raised < high ? raised : high);
}

/// Returns the code of the real value x: clamp(rint(x / scale) + zero_point).
OCTET_HOST_DEVICE inline int32_t quantize(float x, const QParams& q) {
  return clamp_code(rintf(x / q.scale) + static_cast<float>(q.zero_point), q.quant_min, q.quant_max);
}

/// Returns the real value of a code: scale * (code - zero_point).
OCTET_HOST_DEVICE inline float dequantize(int32_t code, const QParams& q) {
  return q.scale * static_cast<float>(code - q.zero_point);
}

/// Returns t = fma(float(acc), multiplier, bias): the value of an accumulator in units of the output scale (for logits,
/// as a real value).
OCTET_HOST_DEVICE inline float rescale(int32_t acc, float multiplier, float bias) {
  return fmaf(static_cast<float>(acc), multiplier, bias);
}

/// Returns the code clamp(rint(t) + zero_point) for t from rescale(), to which a second fma may have added a residual.
OCTET_HOST_DEVICE inline int32_t round_code(float t, int32_t zero_point, int32_t lo, int32_t hi) {
  return clamp_code(rintf(t) + static_cast<float>(zero_point), lo, hi);
}

/// Returns the real value with which a pixel enters the network: (pixel / 255 - mean) / std in float32, in this order.
OCTET_HOST_DEVICE inline float normalize_pixel(uint8_t pixel, float mean, float std) {
  return (static_cast<float>(pixel) / 255.0f - mean) / std;
}

/// The codes that a weight may take, [lowest, highest] with lowest < 0 < highest. Real 0 has code 0.
struct WeightCodes {
  int8_t lowest = -127, highest = 127;

  OCTET_HOST_DEVICE QParams qparams(float scale) const { return {scale, 0, lowest, highest}; }
  bool operator==(const WeightCodes&) const = default;
};

}  // namespace octet

namespace octet::kernels {

/// An activation function as a clamp of a real value. ReLU is {0, infinity}, ReLU6 {0, 6}; the default clamps nothing.
struct Clamp {
  float lo = -INFINITY, hi = INFINITY;

  OCTET_HOST_DEVICE float operator()(float x) const { return x < lo ? lo : x > hi ? hi : x; }  // NaN stays NaN
  /// Returns whether the gradient passes, as in ATen: 0 < x for ReLU (at::threshold_backward), 0 < x < 6 for ReLU6
  /// (at::hardtanh_backward).
  OCTET_HOST_DEVICE bool passes(float x) const { return x > lo && x < hi; }
};

inline constexpr Clamp kNoClamp{}, kRelu{0.0f, INFINITY}, kRelu6{0.0f, 6.0f};

}  // namespace octet::kernels
