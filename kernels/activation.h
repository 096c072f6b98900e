// Activations as a clamp of a real value, with the gradient that ATen gives them. Host and device.
#pragma once

#include "kernels/quantize.h"

namespace octet::kernels {

/// max(x, 0) is {0, infinity}, ReLU6 {0, 6}; without activation nothing is clamped.
struct Clamp {
  float lo = -INFINITY, hi = INFINITY;

  OCTET_HOST_DEVICE float operator()(float x) const { return x < lo ? lo : x > hi ? hi : x; }  // NaN stays NaN
  /// Where the gradient passes: 0 < x for ReLU (at::threshold_backward), 0 < x < 6 for ReLU6 (at::hardtanh_backward).
  OCTET_HOST_DEVICE bool passes(float x) const { return x > lo && x < hi; }
};

inline constexpr Clamp kNoClamp{}, kRelu{0.0f, INFINITY}, kRelu6{0.0f, 6.0f};

}  // namespace octet::kernels
