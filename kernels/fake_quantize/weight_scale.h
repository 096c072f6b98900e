// The scale of a row of weights: from how far it reaches, or by least squared error among shrunk ranges. Host and
// device.
#pragma once

#include "kernels/fake_quantize/weight_codes.h"
#include "kernels/observe/edge_quantizer.h"

namespace octet::kernels {

/// How far a row reaches from zero: the largest -w and the largest w, each at least 0.
struct WeightReach {
  float below = 0, above = 0;
};

/// The least scale whose codes hold the whole row: max(below / -lowest, above / highest), for symmetric codes the
/// largest magnitude over the highest code. A row of zeros gets scale 1 / highest.
OCTET_HOST_DEVICE inline float scale_of_reach(const WeightReach& reach, const WeightCodes& codes) {
  if (reach.below == 0 && reach.above == 0) return 1.0f / static_cast<float>(codes.highest);
  const float below = reach.below / static_cast<float>(-codes.lowest);
  const float above = reach.above / static_cast<float>(codes.highest);
  const float scale = below > above ? below : above;
  return scale > kSmallestScale ? scale : kSmallestScale;
}

/// Shrink factors of the reach, tried in this order; the first of the least error is best.
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
OCTET_HOST_DEVICE inline float shrunk_scale(const WeightReach& reach, double factor, const WeightCodes& codes) {
  return scale_of_reach({static_cast<float>(reach.below * factor), static_cast<float>(reach.above * factor)}, codes);
}

/// Sums of squared errors are kept in so many partial sums, value i in sum i % kErrorLanes, added up in order: wherever
/// they are computed, every bit is the same.
inline constexpr int kErrorLanes = 16;

}  // namespace octet::kernels
