// SPDX-License-Identifier: Apache-2.0
// Scales and ranges that are trained with the weights, and the slopes that their gradients need. For host and device.
//
// v: a value; lowest, highest: the codes; z: the zero point; N: the values of one image (of weights: of one channel).
// A gradient is the sum over all values of dL/dy times the following slope, times a factor:
//
//   lsq       trains the scale s (LSQ; Esser et al., arXiv 1902.08153): y = s (clamp(rint(v / s) + z) - z)
//               dy/ds = rint(v / s) - v / s where the code is not clamped; lowest - z below, highest - z above
//               factor 1 / sqrt(N Qp), Qp = highest - z, at least 1
//   lsq_plus  trains the scale s and the offset b, the real value of code 0 (LSQ+; Bhalgat et al., arXiv 2004.09576)
//               z = clamp(rint(-b / s), lowest, highest), so that zero, with which convolutions pad, has a code
//               dy/ds = rint(v / s) - v / s where the code is not clamped; lowest below, highest above
//               dy/db = 0 where the code is not clamped; 1 below and above          (straight through z's rounding)
//               factor 1 / sqrt(N Qp) for both, Qp = highest
//             The paper rounds (v - b) / s. Here v / s is rounded and z added: z is an integer, so the code is the
//             same.
//
// Worked: codes [0, 15], z 3. lsq_plus, s 0.1, b -0.3: v = -0.4 has dy/ds 0 and dy/db 1, v = 9 has 15 and 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/core/quantize.h"
#include "kernels/training/observe.h"

namespace octet::kernels {

/// Returns lsq's factor 1 / sqrt(N Qp). Worked: 16 values of codes [-8, 7] give 1 / sqrt(16 * 7) = 0.0945.
OCTET_HOST_DEVICE inline double scale_gradient_factor(long values, int32_t highest, int32_t zero_point) {
  const int32_t above = highest - zero_point;
  return 1 / sqrt(static_cast<double>(values) * (above > 1 ? above : 1));
}

/// Slopes are kept from the forward to the backward pass as int16: half a step is 32,766; a clamped code has an end.
inline constexpr int16_t kSlopeBelow = -32767, kSlopeAbove = 32767;
inline constexpr float kSlopeUnits = 65532;

/// Returns dy/ds of a code that is not clamped, in [-0.5, 0.5], as int16.
OCTET_HOST_DEVICE inline int16_t pack_slope(float slope) {
  const float units = rintf(slope * kSlopeUnits);
  return static_cast<int16_t>(units < -32766.0f ? -32766.0f : units > 32766.0f ? 32766.0f : units);
}

/// Returns whether a packed slope is that of a clamped code.
OCTET_HOST_DEVICE inline bool is_end(int16_t slope) { return slope == kSlopeBelow || slope == kSlopeAbove; }

enum class RangeRule { lsq, lsq_plus };

/// The trained numbers of a range: `value` is the scale, `offset` is used by lsq_plus only.
struct LearnedRange {
  RangeRule rule = RangeRule::lsq;
  float value = 1, offset = 0;

  /// Returns q with the scale, and with lsq_plus the zero point, of this range.
  OCTET_HOST_DEVICE QParams qparams(QParams q) const {
    q.scale = value;
    if (rule == RangeRule::lsq_plus) q.zero_point = clamp_code(rintf(-offset / value), q.quant_min, q.quant_max);
    return q;
  }
};

/// The slopes dy/ds below and above the codes.
struct EndSlopes {
  float below, above;

  OCTET_HOST_DEVICE EndSlopes(RangeRule rule, const QParams& q) {
    const int32_t zero = rule == RangeRule::lsq_plus ? 0 : q.zero_point;
    below = static_cast<float>(q.quant_min - zero);
    above = static_cast<float>(q.quant_max - zero);
  }
  /// Returns the slope that was packed by pack_slope(), or that of an end.
  OCTET_HOST_DEVICE float unpack(int16_t slope) const {
    if (slope == kSlopeBelow) return below;
    if (slope == kSlopeAbove) return above;
    return static_cast<float>(slope) * (1 / kSlopeUnits);
  }
};

/// Returns the factor of the rule's gradients; values: N.
OCTET_HOST_DEVICE inline double range_gradient_factor(RangeRule rule, long values, const QParams& q) {
  return scale_gradient_factor(values, q.quant_max, rule == RangeRule::lsq_plus ? 0 : q.zero_point);
}

/// Gradients without range_gradient_factor().
struct RangeGradient {
  double value = 0;   ///< sum of dL/dy times dy/ds
  double offset = 0;  ///< sum of dL/dy times dy/db; 0 except with lsq_plus
};

/// Returns the gradients of a range over a thread's share of the values x and their gradients dy, summed in double in a
/// fixed order. It is the definition for the GPU. q is LearnedRange::qparams(); uint16_t stands for bfloat16, as in
/// fake_quantize.h.
RangeGradient range_gradient(const float* x, const float* dy, size_t count, RangeRule rule, const QParams& q);
RangeGradient range_gradient(const uint16_t* x, const uint16_t* dy, size_t count, RangeRule rule, const QParams& q);

}  // namespace octet::kernels
