// Learned scales (LSQ; Esser et al., arXiv 1902.08153), and the slope that their gradient needs; learned_range.h has
// what else of an activation may learn. Host and device.
//
//   y = s (clamp(rint(v / s) + z) - z)
//   dy/ds = rint(v / s) - v / s, where the code was not clamped; lowest - z below, highest - z above
//   gradient of s = sum of dL/dy dy/ds over all values, times 1 / sqrt(N Qp)
//   N: values of one picture (weights: of the channel); Qp = highest - z, at least 1
#pragma once

#include "kernels/quantize.h"

namespace octet::kernels {

/// 1 / sqrt(N Qp). Worked: 16 values of codes [-8, 7]: 1 / sqrt(16 * 7) = 0.0945.
OCTET_HOST_DEVICE inline double scale_gradient_factor(long values, int32_t highest, int32_t zero_point) {
  const int32_t above = highest - zero_point;
  return 1 / sqrt(static_cast<double>(values) * (above > 1 ? above : 1));
}

/// dy/ds as it is kept from the forward to the backward pass: half a step is 32,766, clamped codes are an end.
inline constexpr int16_t kSlopeBelow = -32767, kSlopeAbove = 32767;
inline constexpr float kSlopeUnits = 65532;

OCTET_HOST_DEVICE inline int16_t pack_slope(float slope) {
  const float units = rintf(slope * kSlopeUnits);
  return static_cast<int16_t>(units < -32766.0f ? -32766.0f : units > 32766.0f ? 32766.0f : units);
}

/// Of a clamped code.
OCTET_HOST_DEVICE inline bool is_end(int16_t slope) { return slope == kSlopeBelow || slope == kSlopeAbove; }

}  // namespace octet::kernels
