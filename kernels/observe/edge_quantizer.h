// How an edge's running range follows the batches it sees, and which scale and zero point the range gives: the
// arithmetic of src/quant's Observer and choose_qparams, for host and device. Compile without contraction (see
// kernels/quantize.h).
#pragma once

#include <algorithm>

#include "kernels/observe/observe.h"
#include "kernels/quantize.h"

namespace octet {

/// Least scale of an edge: no real network's steps are smaller, and multipliers stay below kMaxMultiplier.
inline constexpr float kSmallestScale = 0x1p-64f;

namespace kernels {

/// Larger magnitudes are refused: the network diverged, and the edges of a histogram's bins must stay finite.
inline constexpr float kLargestObserved = 1e30f;

/// In double: a range that starts from calibrated qparams gives them back, which floats cannot.
struct RunningRange {
  double lo = 0, hi = 0;
  int32_t seen = 0;  ///< batches, up to kManyBatches; 0: the next batch's range is taken as it is
};

inline constexpr int32_t kManyBatches = 0x7fffffff;

/// averaging: weight of the new batch in the moving average, which is the plain mean until that many batches were seen;
/// 0: minimum and maximum of all batches. Only lo and hi of `batch` are read.
OCTET_HOST_DEVICE inline RunningRange follow(const RunningRange& s, const ValueRange& batch, double averaging) {
  if (s.seen == 0) return {batch.lo, batch.hi, 1};
  const int32_t seen = s.seen < kManyBatches ? s.seen + 1 : s.seen;
  if (averaging == 0) return {std::min<double>(s.lo, batch.lo), std::max<double>(s.hi, batch.hi), seen};
  const double weight = std::max(averaging, 1.0 / seen);
  return {s.lo + weight * (batch.lo - s.lo), s.hi + weight * (batch.hi - s.hi), seen};
}

/// octet::choose_qparams for a finite range lo <= hi; src/quant/qparams.h has the formulas.
OCTET_HOST_DEVICE inline QParams qparams_of_range(double lo, double hi, const QParams& range, bool affine) {
  // In double: hi - lo of two floats may overflow, and the quotient is rounded once.
  double low = std::min(lo, 0.0), high = std::max(hi, 0.0);
  if (!affine) {
    high = range.is_signed() ? std::max(-low, high) : high;
    low = 0;
  }
  const double steps = affine ? range.quant_max - range.quant_min : range.quant_max;
  if (high == low) high = low + 1;  // nothing but zeros: any scale is exact
  const float scale = static_cast<float>((high - low) / steps);
  QParams q = range;
  q.scale = scale > kSmallestScale ? scale : kSmallestScale;
  q.zero_point = 0;
  if (affine) {
    const double zero_point = rint(range.quant_min - low / static_cast<double>(q.scale));
    const double least = range.quant_min, most = range.quant_max;
    q.zero_point = static_cast<int32_t>(zero_point < least ? least : zero_point > most ? most : zero_point);
  }
  return q;
}

/// The range that qparams_of_range() turns into q again, in every bit: products of a scale and a code are exact in
/// double. Signed symmetric codes use their highest one at both ends, as the scale does; the lowest would give another.
/// It counts as many batches: the next is one more.
OCTET_HOST_DEVICE inline RunningRange range_of_qparams(const QParams& q, bool affine) {
  const double scale = q.scale;
  if (affine) return {scale * (q.quant_min - q.zero_point), scale * (q.quant_max - q.zero_point), kManyBatches};
  return {q.is_signed() ? -scale * q.quant_max : 0, scale * q.quant_max, kManyBatches};
}

/// What the blocks of one observing launch share; at rest as here.
struct ObserverBlocks {
  uint32_t lowest = 0xffffffffu, highest = 0;  ///< floats as integers of the same order
  uint32_t damaged = 0, done = 0;
};

/// One edge of a network in device memory: what observing moves and fake quantization reads. `qparams` comes first, so
/// that a pointer to the edge is one to them.
struct EdgeQuantizer {
  QParams qparams;     ///< scale and zero point move; the range of codes stays
  int32_t affine = 0;  ///< zero_point moves too
  RunningRange range;
  int32_t not_finite = 0;  ///< set, and the range left alone, when a batch held NaN, infinity or more than 1e30
  double averaging = 0;    ///< as in follow()
  ObserverBlocks blocks;
};

}  // namespace kernels
}  // namespace octet
