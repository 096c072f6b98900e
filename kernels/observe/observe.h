// Statistics of an array of floats: range and histogram. One thread a call; callers add up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octet::kernels {

struct ValueRange {
  float lo = 0, hi = 0;
  bool finite = true;  ///< no NaN, no infinity
};

/// Smallest and largest of count >= 1 values. When `finite` is false, lo and hi mean nothing.
ValueRange find_range(const float* x, size_t count);

/// Bins of one width, a power of two: value v falls into bin floor(v / width) - first, which is exact arithmetic, so
/// that histograms of any two widths agree.
struct Bins {
  float width = 1;
  int32_t first = 0;  ///< floor(v / width) of bin 0
  int32_t count = 0;
};

/// counts[bin] += values in bin. Every value must lie within the bins.
void add_to_histogram(const float* x, size_t count, const Bins& bins, double* counts);

}  // namespace octet::kernels
