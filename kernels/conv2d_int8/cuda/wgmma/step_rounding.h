// Rounding by the smallest floats. Below 2^-126 floats are the multiples of 2^-149, and their bits count these steps.
// So an fma whose result is that small rounds half to even to a whole number of steps, and its bits are the code: one
// instruction in place of three. Everything before it is computed in values * 2^-16, which costs no bit, so that a
// residual's code, too, is a float as it stands: code * 2^-133.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/codes.h"
#include "kernels/conv2d_int8/cuda/saturate.cuh"

namespace octet::kernels {

/// What scales and biases are multiplied by.
inline constexpr float kStepScale = 0x1p-16f;

/// True when kStepScale costs no bit of products with this scale: they are multiples of 2^-103, so that all that a sum
/// of them loses below 2^-149 are biases below 2^-110, of which it only sees the sign.
inline bool can_scale_steps(float scale) {
  return scale == 0 || (std::fabs(scale) >= 0x1p-80f && std::fabs(scale) <= 0x1p8f);
}

/// The same of all of a convolution's scales; with biases that leave t * kStepScale far from the largest floats.
inline bool can_scale_steps(const float* scale, const float* bias, int channels) {
  for (int k = 0; k < channels; ++k) {
    if (!can_scale_steps(scale[k]) || std::fabs(bias[k]) > 0x1p20f) return false;
  }
  return true;
}

/// A bias * kStepScale, whose sign stays even where it is too small for a float.
inline float scaled_bias(float bias) {
  const float scaled = bias * kStepScale;
  return scaled == 0 && bias != 0 ? std::copysign(0x1p-149f, bias) : scaled;
}

/// round_code() of t for outputs that clamp from the lowest code of their type on, or from 0 (ReLU): to any code where
/// steps count from the lowest one, to a number of steps that is all ones where they count from the highest.
struct StepRounding {
  float by, plus;  ///< t * kStepScale to steps, of which a byte counts the codes from the lowest or from the highest on
  int32_t most;    ///< steps; less than a byte holds: steps are limited
  uint32_t flip;   ///< turns a word of counted steps into one of codes

  explicit StepRounding(const CodeOutput& out) {
    const int32_t first = out.zero_point - out.clamp_min;  // steps of t = 0, if they are even:
    const bool from_end = first % 2 != 0;                  // a tie goes to an even number of steps
    by = from_end ? -0x1p-133f : 0x1p-133f;
    plus = __builtin_bit_cast(float, from_end ? out.clamp_max - out.zero_point : first);
    most = out.clamp_max - out.clamp_min;
    flip = (from_end ? static_cast<uint32_t>(most) * 0x01010101u : 0u) ^ (out.clamp_min < 0 ? 0x80808080u : 0u);
  }
  static bool can(const CodeOutput& out) {
    const bool from_lowest = out.clamp_min == 0 || (out.is_signed && out.clamp_min == -128);
    const int32_t first = out.zero_point - out.clamp_min, all = out.clamp_max - out.clamp_min;
    const bool counts = first % 2 == 0 || (all & (all + 1)) == 0;
    return !out.float_output && from_lowest && first >= 0 && first <= all && counts;
  }
  /// Steps, to saturate to a byte: below 0 they have the sign bit, above 255 they are in order.
  OCTET_HOST_DEVICE int32_t operator()(float scaled) const {
    return __builtin_bit_cast(int32_t, fmaf(scaled, by, plus));
  }

#if defined(__CUDACC__)
  /// The codes of four values.
  template <bool kLimited>
  __device__ __forceinline__ uint32_t word(const float (&v)[4]) const {
    int32_t steps[4] = {(*this)(v[0]), (*this)(v[1]), (*this)(v[2]), (*this)(v[3])};
    if constexpr (kLimited) {
#pragma unroll
      for (int32_t& s : steps) s = min(s, most);
    }
    return saturate_to_bytes(steps[0], steps[1], steps[2], steps[3]) ^ flip;
  }
#endif
};

/// float(code - zero point) of a residual's codes in words, times a power of two that `multiplier` undoes.
struct ResidualSteps {
  uint32_t flip;  ///< turns int8 codes into uint8 codes + 128
  float zero;     ///< undoes that, and the zero point
  float multiplier;

  ResidualSteps(int32_t zero_point, bool is_signed, float residual_multiplier)
      : flip(is_signed ? 0x80808080u : 0u),
        zero(static_cast<float>(zero_point + (is_signed ? 128 : 0)) * 0x1p-133f),
        multiplier(residual_multiplier * 0x1p117f) {}

  /// Codes are values as they stand.
  OCTET_HOST_DEVICE bool plain() const { return flip == 0 && zero == 0; }

#if defined(__CUDACC__)
  template <bool kZero>
  __device__ __forceinline__ float value(uint32_t word, int lane) const {
    const float code = __uint_as_float(__byte_perm(word, 0, 0x4044 | lane << 8));
    return kZero ? code - zero : code;
  }
#endif
};

}  // namespace octet::kernels
