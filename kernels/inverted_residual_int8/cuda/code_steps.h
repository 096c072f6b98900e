// How hidden codes are rounded: by the smallest floats (wgmma/step_rounding.h has the idea), for any zero point and any
// clamp. Codes that stay on the chip are uint8 whatever their edge is: int8 codes + 128, and so are their zero points.
#pragma once

#include <cstdint>

#include "kernels/conv2d_int8/cuda/saturate.cuh"
#include "kernels/conv2d_int8/cuda/wgmma/step_rounding.h"

namespace octet::kernels {

/// A code of an edge as it is held on the chip.
inline int held_code(int32_t code, bool is_signed) { return code + (is_signed ? 128 : 0); }

/// round_code() of t * kStepScale, to held codes.
struct CodeSteps {
  float by, plus;   ///< t * kStepScale to steps, counted from code 0, or from 255 down where the zero point is odd:
                    ///< a tie goes to an even number of steps
  uint32_t flip;    ///< four codes that were counted from 255 down
  float low, high;  ///< clamp bounds of t * kStepScale
  bool limited;     ///< they are not all codes

  explicit CodeSteps(const CodeOutput& out) {
    const int zero = held_code(out.zero_point, out.is_signed);
    const bool from_end = zero % 2 != 0;
    by = from_end ? -0x1p-133f : 0x1p-133f;
    plus = __builtin_bit_cast(float, from_end ? 255 - zero : zero);
    flip = from_end ? 0xFFFFFFFFu : 0u;
    low = static_cast<float>(out.clamp_min - out.zero_point) * kStepScale;
    high = static_cast<float>(out.clamp_max - out.zero_point) * kStepScale;
    limited = held_code(out.clamp_min, out.is_signed) != 0 || held_code(out.clamp_max, out.is_signed) != 255;
  }

#if defined(__CUDACC__)
  /// Held codes of four values. A clamp to all codes is what packing does.
  template <bool kLimited>
  __device__ __forceinline__ uint32_t word(float a, float b, float c, float d) const {
    return saturate_to_bytes(steps<kLimited>(a), steps<kLimited>(b), steps<kLimited>(c), steps<kLimited>(d)) ^ flip;
  }

 private:
  /// Below 0 they have the sign bit, above 255 they are in order.
  template <bool kLimited>
  __device__ __forceinline__ int32_t steps(float scaled) const {
    if constexpr (kLimited) scaled = fminf(fmaxf(scaled, low), high);
    return __float_as_int(fmaf(scaled, by, plus));
  }
#endif
};

}  // namespace octet::kernels
