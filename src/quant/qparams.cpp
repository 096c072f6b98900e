#include <algorithm>
#include <cmath>
#include <string>

#include "src/common/error.h"
#include "src/quant/fuse.h"

namespace octet {

QParams choose_qparams(float lo, float hi, const QParams& range, bool affine) {
  if (!std::isfinite(lo) || !std::isfinite(hi) || lo > hi) {
    throw promise_error("qparams: [" + std::to_string(lo) + ", " + std::to_string(hi) +
                        "] is no range of values; was the edge observed?");
  }
  // In double: hi - lo of two floats may overflow, and the quotient is rounded once.
  double low = std::min(lo, 0.0f), high = std::max(hi, 0.0f);
  if (!affine) {
    high = range.is_signed() ? std::max(-low, high) : high;
    low = 0;
  }
  const double steps = affine ? range.quant_max - range.quant_min : range.quant_max;
  if (high == low) high = low + 1;  // nothing but zeros: any scale is exact
  QParams q = range;
  q.scale = std::max(static_cast<float>((high - low) / steps), kSmallestScale);
  q.zero_point = 0;
  if (affine) {
    const double zero_point = std::nearbyint(range.quant_min - low / static_cast<double>(q.scale));
    q.zero_point = static_cast<int32_t>(
        std::clamp(zero_point, static_cast<double>(range.quant_min), static_cast<double>(range.quant_max)));
  }
  return q;
}

}  // namespace octet
