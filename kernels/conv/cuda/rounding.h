// SPDX-License-Identifier: Apache-2.0
// How convolution kernels round values to codes and pack four of them in a word. Host and device; no CUDA headers.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/codes.h"

namespace octet::kernels {

/// Returns a word with the same code in each of its four bytes.
OCTET_HOST_DEVICE constexpr uint32_t four_codes(int32_t code) { return (code & 0xFF) * 0x01010101u; }

#if defined(__CUDACC__)
/// Clamps four sums to bytes and packs them, the first lowest, in two instructions.
__device__ __forceinline__ uint32_t saturate_to_bytes(int32_t a, int32_t b, int32_t c, int32_t d) {
  uint32_t word;
  asm("{\n"
      ".reg .b32 high;\n"
      "cvt.pack.sat.u8.s32.b32 high, %4, %3, 0;\n"
      "cvt.pack.sat.u8.s32.b32 %0, %2, %1, high;\n"
      "}"
      : "=r"(word)
      : "r"(a), "r"(b), "r"(c), "r"(d));
  return word;
}
#endif

/// Rounds four values as CudaRounding does (kernels/core/codes.cuh), to a word of codes. Packing clamps to a byte, so
/// only a bound within the byte's range costs instructions.
struct PackedRounding {
  float low;           ///< lower bound of t: clamp_min less the zero point
  int32_t offset;      ///< undoes the rounding constant, adds the zero point and, for int8 codes, 128
  uint32_t flip;       ///< subtracts the 128 again
  uint32_t max_codes;  ///< clamp_max, with the added 128, in every byte
  bool limited;        ///< whether clamp_max is below the largest code

  explicit PackedRounding(const CodeOutput& out)
      : low(FastRounding(out).low),
        offset(FastRounding(out).offset + (out.is_signed ? 128 : 0)),
        flip(out.is_signed ? 0x80808080u : 0u),
        max_codes(four_codes(out.clamp_max + (out.is_signed ? 128 : 0))),
        limited(max_codes != 0xFFFFFFFFu) {}

#if defined(__CUDACC__)
  /// Returns the codes as they are before finish(). A large t stays large, because floats and their bits as integers
  /// have the same order.
  __device__ uint32_t operator()(float a, float b, float c, float d) const {
    return saturate_to_bytes(rounded(a), rounded(b), rounded(c), rounded(d));
  }
  /// Applies the upper bound and makes int8 codes signed again.
  template <int kWords>
  __device__ void finish(uint32_t (&word)[kWords]) const {
    if (limited) {
#pragma unroll
      for (uint32_t& w : word) w = __vminu4(w, max_codes);
    }
#pragma unroll
    for (uint32_t& w : word) w ^= flip;
  }

 private:
  __device__ int32_t rounded(float t) const {
    return __float_as_int(fmaxf(t, low) + FastRounding::kRoundingConstant) + offset;
  }
#endif
};

// Rounding in steps, by subnormal floats. Below 2^-126 floats are the multiples of 2^-149, and their bits count these
// steps. So an fma whose result is that small rounds half to even to an integer number of steps, and its bits are the
// code: one instruction instead of three. Everything before it is computed in values * 2^-16, which loses no bit. A
// residual's code read as the bits of a float is then a valid operand, too: code * 2^-133.

/// The factor by which scales and biases are multiplied.
inline constexpr float kStepScale = 0x1p-16f;

/// Returns whether products with this scale lose no bit to kStepScale. Such products are multiples of 2^-103, so a sum
/// loses only biases below 2^-110 to the limit of 2^-149, and of these only the sign matters.
inline bool can_scale_steps(float scale) {
  return scale == 0 || (std::fabs(scale) >= 0x1p-80f && std::fabs(scale) <= 0x1p8f);
}

/// Returns whether this holds for all scales of a convolution, and no bias brings t * kStepScale near the largest
/// floats.
inline bool can_scale_steps(const float* scale, const float* bias, int channels) {
  for (int k = 0; k < channels; ++k) {
    if (!can_scale_steps(scale[k]) || std::fabs(bias[k]) > 0x1p20f) return false;
  }
  return true;
}

/// Returns bias * kStepScale, with the sign kept even if the product is too small for a float.
inline float scaled_bias(float bias) {
  const float scaled = bias * kStepScale;
  return scaled == 0 && bias != 0 ? std::copysign(0x1p-149f, bias) : scaled;
}

/// Multiplies scales and biases of the first `count` channels in packed data (CudaChannelConstants of `channels`) by
/// kStepScale.
inline void scale_constants(void* packed, int channels, int count) {
  float* constants = static_cast<float*>(packed);
  for (int k = 0; k < count; ++k) {
    constants[k] *= kStepScale;
    constants[channels + k] = scaled_bias(constants[channels + k]);
  }
}

/// Computes round_code() of t in steps, for outputs that clamp at the lowest code of their type or at 0 (ReLU). Steps
/// count from the lowest code, with any highest one, or down from the highest, which must then be all ones.
struct StepRounding {
  float by, plus;     ///< steps = fma(t * kStepScale, by, plus)
  int32_t max_steps;  ///< number of steps from the lowest to the highest code; below 255 steps must be limited
  uint32_t flip;      ///< turns a word of counted steps into one of codes

  explicit StepRounding(const CodeOutput& out) {
    const int32_t first = out.zero_point - out.clamp_min;  // steps of t = 0
    const bool from_end = first % 2 != 0;                  // must be even, since a tie goes to an even number of steps
    by = from_end ? -0x1p-133f : 0x1p-133f;
    plus = __builtin_bit_cast(float, from_end ? out.clamp_max - out.zero_point : first);
    max_steps = out.clamp_max - out.clamp_min;
    flip = (from_end ? four_codes(max_steps) : 0u) ^ (out.clamp_min < 0 ? 0x80808080u : 0u);
  }
  /// Returns whether codes of this output can be rounded in steps.
  static bool can(const CodeOutput& out) {
    const bool from_lowest = out.clamp_min == 0 || (out.is_signed && out.clamp_min == -128);
    const int32_t first = out.zero_point - out.clamp_min, all = out.clamp_max - out.clamp_min;
    const bool counts = first % 2 == 0 || (all & (all + 1)) == 0;
    return !out.float_output && from_lowest && first >= 0 && first <= all && counts;
  }
  /// Returns a number of steps that has yet to saturate to a byte: below 0 the sign bit is set, above 255 order is
  /// kept.
  OCTET_HOST_DEVICE int32_t operator()(float scaled) const {
    return __builtin_bit_cast(int32_t, fmaf(scaled, by, plus));
  }

#if defined(__CUDACC__)
  /// Returns the codes of four values.
  template <bool kLimited>
  __device__ __forceinline__ uint32_t word(const float (&v)[4]) const {
    int32_t steps[4] = {(*this)(v[0]), (*this)(v[1]), (*this)(v[2]), (*this)(v[3])};
    if constexpr (kLimited) {
#pragma unroll
      for (int32_t& s : steps) s = min(s, max_steps);
    }
    return saturate_to_bytes(steps[0], steps[1], steps[2], steps[3]) ^ flip;
  }
#endif
};

/// Reads codes of a residual from words as float(code - zero point), times a power of two that `multiplier` undoes.
struct ResidualSteps {
  uint32_t flip;  ///< turns int8 codes into uint8 codes + 128
  float zero;     ///< undoes the 128 and the zero point
  float multiplier;

  ResidualSteps(int32_t zero_point, bool is_signed, float residual_multiplier)
      : flip(is_signed ? 0x80808080u : 0u),
        zero(static_cast<float>(zero_point + (is_signed ? 128 : 0)) * 0x1p-133f),
        multiplier(residual_multiplier * 0x1p117f) {}

  /// Returns whether codes need neither flip nor zero.
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
