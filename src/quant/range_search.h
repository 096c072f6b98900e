// How calibrators choose the range of an edge from its histogram. Each returns [lo, hi] for choose_qparams.
#pragma once

#include "src/quant/calibrator.h"

namespace octet {

struct ChosenRange {
  double lo = 0, hi = 0;
};

/// The magnitude that `percentile` percent of the values do not exceed, linear within a bin, as NVIDIA's tools choose
/// it: one tail after a ReLU, both ends at the same distance from zero elsewhere, and neither beyond the values.
ChosenRange percentile_range(const Statistics& statistics, double percentile);

/// Least expected squared error of quantize and dequantize when values are uniform within their bins (the integral is
/// exact, so steps may be finer than bins). Both ends are searched for affine qparams, else their common magnitude.
ChosenRange least_squares_range(const Statistics& statistics, const QParams& range, bool affine);

/// Migacz, "8-bit inference with TensorRT", GTC 2017: of the clipped ranges the one whose distribution, merged into as
/// many levels as there are codes and spread out again, has the least KL divergence from the clipped original, over
/// 2048 bins. What a range clips is missing from the levels (entropy.cpp), so that values far from zero keep theirs.
/// Signed codes see the histogram of |x|; affine codes shrink both ends alike. No end lies beyond the values.
ChosenRange entropy_range(const Statistics& statistics, const QParams& range, bool affine);

}  // namespace octet
