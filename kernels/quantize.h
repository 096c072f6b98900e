// THE rounding rule of octet. Every quantizer, engine, kernel and test calls these functions or reproduces them bit for
// bit.
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
// Compile with -ffp-contract=off: a contracted multiply-add elsewhere would change codes. Compiles as host and as CUDA
// code.
#pragma once

#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define OCTET_HOST_DEVICE __host__ __device__
#else
#define OCTET_HOST_DEVICE
#endif

namespace octet {

/// How one tensor (an edge of the graph) maps reals to codes. Codes are stored as int8 when quant_min < 0, else as
/// uint8.
struct QParams {
  float scale = 1.0f;        ///< > 0 and finite
  int32_t zero_point = 0;    ///< the code of real 0, within [quant_min, quant_max]
  int32_t quant_min = -128;  ///< lowest code
  int32_t quant_max = 127;   ///< highest code
  OCTET_HOST_DEVICE bool is_signed() const { return quant_min < 0; }
  bool operator==(const QParams&) const = default;
};

/// Clamps a rounded value in float and converts it; NaN becomes `lo`.
OCTET_HOST_DEVICE inline int32_t clamp_code(float rounded, int32_t lo, int32_t hi) {
  const float low = static_cast<float>(lo), high = static_cast<float>(hi);
  const float raised = rounded > low ? rounded : low;  // a comparison with NaN is false; fmaxf would not vectorize
  return static_cast<int32_t>(raised < high ? raised : high);
}

/// q = clamp(rint(x / scale) + zero_point).
OCTET_HOST_DEVICE inline int32_t quantize(float x, const QParams& q) {
  return clamp_code(rintf(x / q.scale) + static_cast<float>(q.zero_point), q.quant_min, q.quant_max);
}

/// scale * (q - zero_point).
OCTET_HOST_DEVICE inline float dequantize(int32_t code, const QParams& q) {
  return q.scale * static_cast<float>(code - q.zero_point);
}

/// t = fma(float(acc), multiplier, bias): the value of an accumulator in units of the output scale (or, for logits, in
/// reals).
OCTET_HOST_DEVICE inline float rescale(int32_t acc, float multiplier, float bias) {
  return fmaf(static_cast<float>(acc), multiplier, bias);
}

/// y = clamp(rint(t) + zero_point) for t from rescale(), after any residual was added by a second fma.
OCTET_HOST_DEVICE inline int32_t round_code(float t, int32_t zero_point, int32_t lo, int32_t hi) {
  return clamp_code(rintf(t) + static_cast<float>(zero_point), lo, hi);
}

/// (pixel / 255 - mean) / std in float32, in exactly this order: the real value an image channel enters the network
/// with.
OCTET_HOST_DEVICE inline float normalize_pixel(uint8_t pixel, float mean, float std) {
  return (static_cast<float>(pixel) / 255.0f - mean) / std;
}

}  // namespace octet
