// SPDX-License-Identifier: Apache-2.0
// Observers: the range and the histogram of the values that a tensor takes, how a running range follows the batches,
// and the scale and zero point that a range gives. Functions for host and device are the arithmetic of src/quant's
// Observer and choose_qparams().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/core/cuda.h"
#include "kernels/core/quantize.h"

namespace octet {

/// The smallest scale of a tensor. No real network has smaller steps, and multipliers stay below kMaxMultiplier.
inline constexpr float kSmallestScale = 0x1p-64f;

}  // namespace octet

namespace octet::kernels {

/// The min and max of some values.
struct ValueRange {
  float lo = 0, hi = 0;  ///< undefined unless `finite`
  bool finite = true;    ///< there is neither NaN nor infinity
};

/// Returns the range of count >= 1 values. It runs in the calling thread, like add_to_histogram(): callers split arrays
/// among threads and join the results.
ValueRange find_range(const float* x, size_t count);

/// The bins of a histogram. Their width is a power of two, so that bin floor(v / width) - first of a value v is
/// computed exactly and histograms of different widths agree.
struct Bins {
  float width = 1;
  int32_t first = 0;  ///< floor(v / width) of bin 0
  int32_t count = 0;
};

/// Adds the number of values in each bin to counts[bin]. Every value must lie within the bins.
void add_to_histogram(const float* x, size_t count, const Bins& bins, double* counts);

/// Bins of the histogram of one tensor (src/quant/calibrate.h).
inline constexpr int kEdgeBins = 4096;

inline constexpr int kSmallestExponent = -64;  ///< of a bin's width; values this near zero count as zero

/// Returns `count` bins of the smallest power-of-two width >= 2^exponent that hold [lo, hi] and begin at or below zero.
OCTET_HOST_DEVICE inline Bins bins_for(double lo, double hi, int exponent, int32_t count) {
  for (;; ++exponent) {
    const double width = ldexp(1.0, exponent);
    const double first = floor(std::min(lo, 0.0) / width), last = floor(std::max(hi, 0.0) / width);
    if (last - first < count) return {static_cast<float>(width), static_cast<int32_t>(first), count};
  }
}

/// Returns the bin of `wider` that contains bin i of `old`. No bin is split: widths are powers of two, and each bin
/// begins at a multiple of its width.
OCTET_HOST_DEVICE inline int32_t bin_within(const Bins& old, int32_t i, const Bins& wider) {
  const double ratio = static_cast<double>(old.width) / wider.width;
  return static_cast<int32_t>(floor((old.first + i) * ratio)) - wider.first;
}

/// Returns the bin of a value, counted from bins.first. inverse_width is exactly 1 / width.
OCTET_HOST_DEVICE inline int32_t bin_of(float value, float inverse_width, int32_t first) {
  return static_cast<int32_t>(floorf(value * inverse_width)) - first;
}

/// The largest magnitude that is observed. Larger ones are refused, because the network has diverged, and because bins
/// must begin and end at finite values.
inline constexpr float kLargestObserved = 1e30f;

/// The range of a tensor over several batches. It is in double so that a range made from calibrated qparams gives them
/// back exactly.
struct RunningRange {
  double lo = 0, hi = 0;
  int32_t seen = 0;  ///< number of batches, at most kManyBatches; 0: the next batch's range replaces this one
};

inline constexpr int32_t kManyBatches = 0x7fffffff;

/// Returns the range after another batch, of which only lo and hi are read. With averaging = 0 it is the min and max of
/// all batches. Else it is a moving average in which a batch has weight max(averaging, 1 / number of batches): the mean
/// of the first 1 / averaging batches, then an exponential average.
OCTET_HOST_DEVICE inline RunningRange follow(const RunningRange& s, const ValueRange& batch, double averaging) {
  if (s.seen == 0) return {batch.lo, batch.hi, 1};
  const int32_t seen = s.seen < kManyBatches ? s.seen + 1 : s.seen;
  if (averaging == 0) return {std::min<double>(s.lo, batch.lo), std::max<double>(s.hi, batch.hi), seen};
  const double weight = std::max(averaging, 1.0 / seen);
  return {s.lo + weight * (batch.lo - s.lo), s.hi + weight * (batch.hi - s.hi), seen};
}

/// How much further than the running range a batch may reach.
inline constexpr double kBatchReach = 2;

/// Returns the batch's range as follow() is to take it with that averaging: neither end lies further from zero than
/// kBatchReach times the further end of the running range. One image in a thousand may reach a thousand times as far as
/// the others, and then decides a mean of maxima alone; limited so, the batches that hold it (at 128 images one in
/// eight) widen the range by a sixth. A range that has to grow still does, by the share `averaging` of itself a batch:
/// tenfold in 230 batches at 0.01. The batch's own range is returned where there is none to compare it with, or only
/// zeros, and without averaging, which keeps the min and max of all batches.
///
/// Worked: a running range of [-1, 4] takes [-20, 6] as [-8, 6].
OCTET_HOST_DEVICE inline ValueRange limited_range(const RunningRange& s, const ValueRange& batch, double averaging) {
  const double reach = kBatchReach * std::max(-s.lo, s.hi);
  if (averaging == 0 || s.seen == 0 || !(reach > 0)) return batch;
  const auto most = static_cast<float>(reach);
  return {std::min(std::max(batch.lo, -most), most), std::min(std::max(batch.hi, -most), most), batch.finite};
}

/// Returns choose_qparams() of a finite range lo <= hi; src/quant/calibrate.h has the formulas. `range` has the codes.
OCTET_HOST_DEVICE inline QParams qparams_of_range(double lo, double hi, const QParams& range, bool affine) {
  // In double: hi - lo of two floats may overflow, and the quotient is rounded once.
  double low = std::min(lo, 0.0), high = std::max(hi, 0.0);
  if (!affine) {
    high = range.is_signed() ? std::max(-low, high) : high;
    low = 0;
  }
  const double steps = affine ? range.quant_max - range.quant_min : range.quant_max;
  if (high == low) high = low + 1;  // all values are zero: any scale is exact
  const float scale = static_cast<float>((high - low) / steps);
  QParams q = range;
  q.scale = scale > kSmallestScale ? scale : kSmallestScale;
  q.zero_point = 0;
  if (affine) {
    const double zero_point = rint(range.quant_min - low / static_cast<double>(q.scale));
    const double lowest = range.quant_min, highest = range.quant_max;
    q.zero_point = static_cast<int32_t>(zero_point < lowest ? lowest : zero_point > highest ? highest : zero_point);
  }
  return q;
}

/// Returns a range that qparams_of_range() turns into exactly q: products of a scale and a code are exact in double.
/// Signed symmetric codes have their highest code at both ends, as the scale does. The range counts as kManyBatches.
OCTET_HOST_DEVICE inline RunningRange range_of_qparams(const QParams& q, bool affine) {
  const double scale = q.scale;
  if (affine) return {scale * (q.quant_min - q.zero_point), scale * (q.quant_max - q.zero_point), kManyBatches};
  return {q.is_signed() ? -scale * q.quant_max : 0, scale * q.quant_max, kManyBatches};
}

/// What the blocks of a launch share while they find a range. Every launch leaves it as it is initialized here.
struct ObserverBlocks {
  uint32_t lowest = 0xffffffffu, highest = 0;  ///< floats, as integers of the same order
  uint32_t damaged = 0;                        ///< 1: a block has seen NaN or infinity
  uint32_t done = 0;                           ///< number of blocks that have ended
};

/// The quantizer of one tensor in device memory: observing writes it, fake quantization reads it. `qparams` is the
/// first member, so that a pointer to this struct is a pointer to them.
struct EdgeQuantizer {
  QParams qparams;     ///< the scale follows the range; the codes stay
  int32_t affine = 0;  ///< 1: the zero point follows the range too
  RunningRange range;
  int32_t not_finite = 0;  ///< set when a batch has NaN, infinity or a magnitude above 1e30; the range stays then
  double averaging = 0;    ///< as in follow()
  ObserverBlocks blocks;
};

/// Values on the device, in any layout. Their values after the activation are observed; NaN and infinity are noticed
/// before it.
struct ObservedValues {
  const void* x = nullptr;  ///< [count]
  long count = 0;
  ValueType type = ValueType::float32;
  Clamp activation;
};

/// Moves the range of `edge` by follow() and its qparams by qparams_of_range(), with the bits of src/quant's Observer.
/// It is one launch. With NaN, infinity or magnitudes above 1e30 it only sets edge->not_finite.
void cuda_observe(const ObservedValues& values, EdgeQuantizer* edge, CudaStream stream);

/// The histogram of one tensor in device memory, for calibration.
struct EdgeHistogram {
  RunningRange range;
  int32_t not_finite = 0;       ///< as in EdgeQuantizer; once it is set, nothing is counted
  Bins bins{0, 0, 0};           ///< of `counts`; none yet while bins.count is 0
  Bins wider{0, 0, kEdgeBins};  ///< the bins that the latest range needs
  ObserverBlocks blocks;
  unsigned long long counts[kEdgeBins] = {};
};

/// Counts values, after widening the bins where needed. It is three launches.
void cuda_count(const ObservedValues& values, EdgeHistogram* histogram, CudaStream stream);

}  // namespace octet::kernels
