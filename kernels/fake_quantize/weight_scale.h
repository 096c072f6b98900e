// The scale of a row of weights: from its largest magnitude, or by least squared error among shrunk ranges. Host and
// device.
#pragma once

#include "kernels/observe/edge_quantizer.h"
#include "kernels/quantize.h"

namespace octet::kernels {

/// largest: the highest code; codes are in [-largest, largest]. A row of zeros gets scale 1 / largest.
OCTET_HOST_DEVICE inline float scale_of_magnitude(float magnitude, int largest) {
  if (magnitude == 0) return 1.0f / static_cast<float>(largest);
  const float scale = magnitude / static_cast<float>(largest);
  return scale > kSmallestScale ? scale : kSmallestScale;
}

/// Shrink factors of the largest magnitude, tried in this order; the first of the least error is best.
struct ShrinkFactors {
  static constexpr int kMost = 32;
  double factor[kMost] = {};
  int count = 0;
};

/// The whole span, coarsely. Few bits want much narrower ranges than eight do, hence the span down to 0.2.
OCTET_HOST_DEVICE inline ShrinkFactors coarse_factors() {
  constexpr double kCoarse = 0.04, kLeast = 0.2;
  ShrinkFactors factors;
  for (int i = 0; 1 - i * kCoarse >= kLeast; ++i) factors.factor[factors.count++] = 1 - i * kCoarse;
  return factors;
}

/// Around the best of the coarse ones.
OCTET_HOST_DEVICE inline ShrinkFactors fine_factors(double centre) {
  constexpr double kCoarse = 0.04, kFine = 0.005;
  ShrinkFactors factors;
  for (double offset = kFine; offset < kCoarse; offset += kFine) {
    if (centre + offset <= 1) factors.factor[factors.count++] = centre + offset;
    factors.factor[factors.count++] = centre - offset;
  }
  return factors;
}

/// The scale of a row shrunk by one of them.
OCTET_HOST_DEVICE inline float shrunk_scale(float magnitude, double factor, int largest) {
  return scale_of_magnitude(static_cast<float>(magnitude * factor), largest);
}

/// Sums of squared errors are kept in so many partial sums, value i in sum i % kErrorLanes, added up in order: wherever
/// they are computed, every bit is the same.
inline constexpr int kErrorLanes = 16;

}  // namespace octet::kernels
