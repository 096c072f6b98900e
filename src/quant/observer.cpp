#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/observe/edge_quantizer.h"
#include "kernels/observe/observe.h"
#include "src/common/error.h"
#include "src/quant/calibrator.h"

namespace octet {
namespace {

kernels::Bins current_bins(const Statistics& s) {
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  return {static_cast<float>(width), static_cast<int32_t>(s.histogram_lo / width), kHistogramBins};
}

/// Moves the counts into wider or shifted bins: none is split or lost, and the histogram is the one a single pass would
/// have given.
void widen_to(const kernels::Bins& bins, Statistics& s) {
  std::vector<double> counts(kHistogramBins);
  if (!s.histogram.empty()) {
    const kernels::Bins old = current_bins(s);
    for (int i = 0; i < kHistogramBins; ++i) {
      if (s.histogram[i] == 0) continue;  // empty bins past the new end
      counts[kernels::bin_within(old, i, bins)] += s.histogram[i];
    }
  }
  s.histogram = std::move(counts);
  s.histogram_lo = static_cast<float>(bins.first) * bins.width;
  s.histogram_hi = static_cast<float>(bins.first + kHistogramBins) * bins.width;
}

void add_histogram(const float* x, size_t count, Statistics& s) {
  const int exponent = s.histogram.empty() ? kernels::kSmallestExponent : std::ilogb(current_bins(s).width);
  const kernels::Bins bins = kernels::bins_for(s.lo, s.hi, exponent, kHistogramBins);
  const bool changed =
      s.histogram.empty() || bins.width != current_bins(s).width || bins.first != current_bins(s).first;
  if (changed) widen_to(bins, s);
  kernels::add_to_histogram(x, count, bins, s.histogram.data());
}

bool is_possible_histogram(const Statistics& s) {
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
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
  const kernels::RunningRange moved = kernels::follow({s.lo, s.hi, s.seen}, range, averaging());
  s.lo = moved.lo;
  s.hi = moved.hi;
  s.seen = moved.seen;
  if (kind_ == ObserverKind::histogram) add_histogram(x, count, s);
}

}  // namespace octet
