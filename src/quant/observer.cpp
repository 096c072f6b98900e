// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/quant/calibrate.h"

namespace octet {
namespace {

kernels::Bins current_bins(const Statistics& s) {
  const double width = bin_width(s);
  return {static_cast<float>(width), static_cast<int32_t>(s.histogram_lo / width), kHistogramBins};
}

/// Returns the exponent of the bins' width, a power of two; the smallest allowed one without a histogram.
int exponent_of(const Statistics& s) {
  return s.histogram.empty() ? kernels::kSmallestExponent : std::ilogb(current_bins(s).width);
}

/// Adds the counts of `from` to those of bins that are as wide or wider: no count is split or lost.
void add_counts(const Statistics& from, const kernels::Bins& bins, std::vector<double>& counts) {
  if (from.histogram.empty()) return;
  const kernels::Bins old = current_bins(from);
  for (int i = 0; i < kHistogramBins; ++i) {
    if (from.histogram[i] == 0) continue;  // also bins past the new end
    counts[kernels::bin_within(old, i, bins)] += from.histogram[i];
  }
}

/// Moves the counts into wider or shifted bins. The histogram is the one that a single pass would have given.
void widen_to(const kernels::Bins& bins, Statistics& s) {
  std::vector<double> counts(kHistogramBins);
  add_counts(s, bins, counts);
  s.histogram = std::move(counts);
  s.histogram_lo = static_cast<float>(bins.first) * bins.width;
  s.histogram_hi = static_cast<float>(bins.first + kHistogramBins) * bins.width;
}

/// Returns bins for the range that `s` has now, at least 2^exponent wide, and moves the histogram of `s` to them.
kernels::Bins make_room(int exponent, Statistics& s) {
  const kernels::Bins bins = kernels::bins_for(s.lo, s.hi, exponent, kHistogramBins);
  const bool changed =
      s.histogram.empty() || bins.width != current_bins(s).width || bins.first != current_bins(s).first;
  if (changed) widen_to(bins, s);
  return bins;
}

bool is_possible_histogram(const Statistics& s) {
  const double width = bin_width(s);
  int exponent = 0;
  if (!(width > 0) || !std::isfinite(width) || std::frexp(width, &exponent) != 0.5) return false;
  const double first = s.histogram_lo / width;  // exact: a power of two
  if (first != std::floor(first) || first > 0 || first <= -kHistogramBins) return false;
  const double lowest = std::floor(std::min(s.lo, 0.0) / width), highest = std::floor(std::max(s.hi, 0.0) / width);
  for (int i = 0; i < kHistogramBins; ++i) {
    const double count = s.histogram[i], bin = first + i;
    if (!(count >= 0) || !std::isfinite(count) || (count > 0 && (bin < lowest || bin > highest))) return false;
  }
  return true;
}

}  // namespace

double bin_width(const Statistics& statistics) {
  return (static_cast<double>(statistics.histogram_hi) - statistics.histogram_lo) / kHistogramBins;
}

void Observer::restore(const Statistics& s) {
  const bool range = s.seen > 0 && std::isfinite(s.lo) && std::isfinite(s.hi) && s.lo <= s.hi;
  const bool histogram = s.histogram.empty() || (s.histogram.size() == kHistogramBins && is_possible_histogram(s));
  if (s.seen != 0 && !(range && histogram)) {
    throw data_error("statistics of an observer are damaged: its " + std::string(range ? "histogram" : "range") +
                     " is impossible");
  }
  statistics_ = s;
}

void Observer::observe(const float* x, size_t count) {
  if (count == 0) return;
  const kernels::ValueRange range = kernels::find_range(x, count);
  if (!range.finite) throw promise_error("an observed value is not finite");
  if (std::max(-range.lo, range.hi) > kernels::kLargestObserved) {
    throw promise_error("an observed value is beyond " + std::to_string(kernels::kLargestObserved) +
                        ": the network diverged");
  }
  Statistics& s = statistics_;
  const kernels::RunningRange before{s.lo, s.hi, s.seen};
  const kernels::RunningRange moved =
      kernels::follow(before, kernels::limited_range(before, range, averaging()), averaging());
  s.lo = moved.lo;
  s.hi = moved.hi;
  s.seen = moved.seen;
  if (kind_ != ObserverKind::histogram) return;
  const kernels::Bins bins = make_room(exponent_of(s), s);
  kernels::add_to_histogram(x, count, bins, s.histogram.data());
}

void Observer::add(const Statistics& others) {
  if (kind_ == ObserverKind::moving_average) throw promise_error("moving averages cannot be added to each other");
  if (others.seen == 0) return;
  Statistics& s = statistics_;
  s.lo = s.seen == 0 ? others.lo : std::min(s.lo, others.lo);
  s.hi = s.seen == 0 ? others.hi : std::max(s.hi, others.hi);
  s.seen = static_cast<int>(std::min<int64_t>(int64_t{s.seen} + others.seen, kernels::kManyBatches));
  if (others.histogram.empty()) return;
  const kernels::Bins bins = make_room(std::max(exponent_of(s), exponent_of(others)), s);
  add_counts(others, bins, s.histogram);
}

}  // namespace octet
