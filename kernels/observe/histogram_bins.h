// Bins of histograms that widen as values come: the arithmetic of src/quant's Observer, for host and device.
#pragma once

#include <algorithm>

#include "kernels/observe/observe.h"
#include "kernels/quantize.h"

namespace octet::kernels {

/// Of an edge's histogram (src/quant/calibrator.h).
inline constexpr int kEdgeBins = 4096;

inline constexpr int kSmallestExponent = -64;  // of a bin's width; values this near zero are zero

/// `count` bins of least power-of-two width >= 2^exponent that hold [lo, hi] and start at or below zero.
OCTET_HOST_DEVICE inline Bins bins_for(double lo, double hi, int exponent, int32_t count) {
  for (;; ++exponent) {
    const double width = ldexp(1.0, exponent);
    const double first = floor(std::min(lo, 0.0) / width), last = floor(std::max(hi, 0.0) / width);
    if (last - first < count) return {static_cast<float>(width), static_cast<int32_t>(first), count};
  }
}

/// Where bin i of `old` lies within `wider`, whose width is a multiple of old's: widths are powers of two and edges
/// their multiples, so that no bin is split.
OCTET_HOST_DEVICE inline int32_t bin_within(const Bins& old, int32_t i, const Bins& wider) {
  const double ratio = static_cast<double>(old.width) / wider.width;
  return static_cast<int32_t>(floor((old.first + i) * ratio)) - wider.first;
}

/// The bin of a value, counted from bins.first. inverse_width = 1 / width, exactly.
OCTET_HOST_DEVICE inline int32_t bin_of(float value, float inverse_width, int32_t first) {
  return static_cast<int32_t>(floorf(value * inverse_width)) - first;
}

}  // namespace octet::kernels
