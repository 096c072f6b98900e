// How hidden codes are rounded: by the smallest floats (wgmma/step_rounding.h has the idea), for any zero point and any
// clamp. Codes that stay on the chip are uint8 whatever their edge is: int8 codes + 128, and so are their zero points.
#pragma once

#include <cstdint>

#include "kernels/conv2d_int8/cuda/saturate.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"
#include "kernels/inverted_residual_int8/inverted_residual_int8.h"

namespace octet::kernels {

/// What is added to codes of an edge where they are held on the chip. Behind ReLU the highest code becomes 255, so that
/// packing clamps to it.
inline int held_shift(const CodeInput& x) { return x.is_signed ? 128 : 0; }
inline int held_shift(const CodeOutput& y) {
  return y.clamp_min == y.zero_point ? 255 - y.clamp_max : y.is_signed ? 128 : 0;
}

/// Of what depthwise reads.
inline int windows_shift(const InvertedResidual& block) {
  return block.has_expand ? held_shift(block.expand.params.y) : held_shift(block.depthwise.params.x);
}

/// round_code() of t * kStepScale, to held codes.
struct CodeSteps {
  float by, plus;   ///< t * kStepScale to steps, counted from code 0, or from 255 down where the zero point is odd:
                    ///< a tie goes to an even number of steps
  uint32_t flip;    ///< four codes that were counted from 255 down
  float low, high;  ///< clamp bounds of t * kStepScale
  bool relu;        ///< the lowest code is real 0

  explicit CodeSteps(const CodeOutput& out) {
    const int zero = out.zero_point + held_shift(out);
    const bool from_end = zero % 2 != 0;
    by = from_end ? -0x1p-133f : 0x1p-133f;
    plus = __builtin_bit_cast(float, from_end ? 255 - zero : zero);
    flip = from_end ? 0xFFFFFFFFu : 0u;
    low = static_cast<float>(out.clamp_min - out.zero_point) * kStepScale;
    high = static_cast<float>(out.clamp_max - out.zero_point) * kStepScale;
    relu = out.clamp_min == out.zero_point;
  }

#if defined(__CUDACC__)
  /// Held codes of four values, which behind ReLU are none below 0.
  template <bool kRelu>
  __device__ __forceinline__ uint32_t word(float a, float b, float c, float d) const {
    return saturate_to_bytes(steps<kRelu>(a), steps<kRelu>(b), steps<kRelu>(c), steps<kRelu>(d)) ^ flip;
  }

 private:
  /// Below 0 they have the sign bit, above 255 they are in order.
  template <bool kRelu>
  __device__ __forceinline__ int32_t steps(float scaled) const {
    if constexpr (!kRelu) scaled = fminf(fmaxf(scaled, low), high);
    return __float_as_int(fmaf(scaled, by, plus));
  }
#endif
};

}  // namespace octet::kernels
