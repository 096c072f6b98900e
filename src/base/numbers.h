// SPDX-License-Identifier: Apache-2.0
// Small arithmetic: products of sizes that a file gives, percentiles of measured values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

namespace octet {

/// Returns the product of non-negative numbers, INT64_MAX if it does not fit.
template <class Factors = std::initializer_list<int64_t>>
int64_t saturating_product(const Factors& factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

/// Returns the nearest-rank percentile of samples in any order, 0 < q <= 1; 0 if there are none.
inline double percentile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(samples.size()));
  const size_t at = std::min(samples.size() - 1, static_cast<size_t>(std::max(rank, 1.0)) - 1);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(at), samples.end());
  return samples[at];
}

/// Returns the middle sample, or the mean of the two middle ones; 0 if there are none.
inline double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  return samples.size() % 2 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

}  // namespace octet
