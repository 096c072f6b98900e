// Ranges of activations that learn, and the slopes that their gradients need. Host and device. v: a value; lowest,
// highest: the codes; z: the zero point; gradients are sums over all values of dL/dy times:
//
//   lsq       scale s; z stays. learned_scale.h has the formula.
//   lsq_plus  scale s and offset b, the real value of code 0 (LSQ+; Bhalgat et al., arXiv 2004.09576)
//               z = clamp(rint(-b / s), lowest, highest), so that zero, with which convolutions pad, stays a code
//               dy/ds = rint(v / s) - v / s, where the code was not clamped; lowest below, highest above
//               dy/db = 0, where the code was not clamped; 1 below and above      (z's rounding straight through)
//             The paper's v - b and code are v + s z and code here: a whole number of steps, which rint lets through.
//             Both times 1 / sqrt(N Qp) as in learned_scale.h, with Qp = highest.
//   pact      width a of the range (PACT; Choi et al., arXiv 1805.06085): s = a / (highest - lowest); z stays
//               dy/da = 0 in lo <= v < hi; lo / a below, hi / a above, lo = s (lowest - z), hi = s (highest - z)
//               dy/dv = 1 in lo <= v < hi, else 0
//             Of a ReLU z is the lowest code: a is the paper's clipping level, dy/da 1 from there on.
//
// Worked: codes [0, 15], z 3. lsq_plus, s 0.1, b -0.3: v = -0.4 has dy/ds 0 and dy/db 1, v = 9 has 15 and 1.
// pact, a 3, s 0.2: lo = -0.6 and hi = 2.4; v = -1 has dy/da -0.2, v = 2.4 has 0.8.
#pragma once

#include "kernels/fake_quantize/learned_scale.h"
#include "kernels/observe/edge_quantizer.h"
#include "kernels/quantize.h"

namespace octet::kernels {

enum class RangeRule { lsq, lsq_plus, pact };

/// What learns of a range: `value` is a scale or, of pact, a width; `offset` is lsq_plus's alone.
struct LearnedRange {
  RangeRule rule = RangeRule::lsq;
  float value = 1, offset = 0;

  /// Scale and zero point; codes, and the zero point of other rules, are those of q.
  OCTET_HOST_DEVICE QParams qparams(QParams q) const {
    q.scale = value;
    if (rule == RangeRule::lsq_plus) q.zero_point = clamp_code(rintf(-offset / value), q.quant_min, q.quant_max);
    if (rule == RangeRule::pact) {
      const float scale = value / static_cast<float>(q.quant_max - q.quant_min);
      q.scale = scale > kSmallestScale ? scale : kSmallestScale;
    }
    return q;
  }
};

/// Of pact's values the gradient passes lo <= v < hi.
struct ClipEnds {
  float lo, hi;

  OCTET_HOST_DEVICE ClipEnds(float width, const QParams& q) {
    const float codes = static_cast<float>(q.quant_max - q.quant_min);
    lo = width *
         (static_cast<float>(q.quant_min - q.zero_point) / codes);  // shares first: a whole range ends at `width`
    hi = width * (static_cast<float>(q.quant_max - q.zero_point) / codes);
  }
  OCTET_HOST_DEVICE bool pass(float v) const { return v >= lo && v < hi; }  // never NaN
};

/// dy / d(value) below and above the codes, and whether it is 0 between them.
struct EndSlopes {
  float below, above;
  bool flat;

  OCTET_HOST_DEVICE EndSlopes(RangeRule rule, const QParams& q) : flat(rule == RangeRule::pact) {
    const int32_t zero = rule == RangeRule::lsq_plus ? 0 : q.zero_point;
    below = static_cast<float>(q.quant_min - zero);
    above = static_cast<float>(q.quant_max - zero);
    if (flat) {
      below /= static_cast<float>(q.quant_max - q.quant_min);
      above /= static_cast<float>(q.quant_max - q.quant_min);
    }
  }
  /// Of a slope packed by pack_slope() or an end.
  OCTET_HOST_DEVICE float unpack(int16_t slope) const {
    if (slope == kSlopeBelow) return below;
    if (slope == kSlopeAbove) return above;
    return flat ? 0.0f : static_cast<float>(slope) * (1 / kSlopeUnits);
  }
};

/// What the sums are multiplied by; values: N of learned_scale.h.
OCTET_HOST_DEVICE inline double range_gradient_factor(RangeRule rule, long values, const QParams& q) {
  if (rule == RangeRule::pact) return 1;
  return scale_gradient_factor(values, q.quant_max, rule == RangeRule::lsq_plus ? 0 : q.zero_point);
}

}  // namespace octet::kernels
