// rint(x / scale) for many x and one scale, without dividing: an estimate by the reciprocal, which says when it is not
// sure. Host and device.
#pragma once

#include "kernels/quantize.h"

namespace octet::kernels {

/// The estimate e = x * (1 / scale) is rounded three times where the quotient is rounded once, so that it is off by
/// less than 2^-22 |e|. Further than that from halfway between two integers both round to the same one. Elsewhere (one
/// value in some ten thousand), for NaN, infinity, huge quotients and extreme scales `sure` becomes false: divide.
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
  OCTET_HOST_DEVICE float exact(float x) const { return rintf(x / scale); }

  OCTET_HOST_DEVICE float operator()(float x) const {
    bool sure = true;
    const float rounded = estimate(x, sure);
    return sure ? rounded : exact(x);
  }
};

}  // namespace octet::kernels
