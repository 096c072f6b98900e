// SPDX-License-Identifier: Apache-2.0
// The statistics of an edge: as observers collect them, and as far as the functions that read it tell its values apart.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include "kernels/training/observe.h"
#include "src/base/error.h"
#include "src/quant/calibrate.h"
#include "src/quant/convert.h"

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

// What functions that read an edge tell apart.
namespace {

constexpr int kSamples = 4096;     // of an interval
constexpr int kWithin = 64;        // more of each interval within it, which has those of wider ones, too
constexpr double kWorthIt = 0.02;  // an end that is not flat is within the tolerance for a few samples, too

/// Returns where a curve is to be evaluated for intervals within each other, in ascending order.
std::vector<double> places(const std::vector<Interval>& nested) {
  std::vector<double> x;
  for (const auto& [lo, hi] : nested) {
    if (!(lo < hi)) continue;
    const int steps = x.empty() ? kSamples : kWithin;
    for (int i = 0; i < steps; ++i) x.push_back(lo + (hi - lo) * i / steps);
    x.push_back(hi);
  }
  std::sort(x.begin(), x.end());
  return x;
}

/// Returns told_apart() of the values x, in ascending order, of which the curve makes f.
Interval told_apart(std::span<const double> x, std::span<const double> f, int steps) {
  const auto [least, most] = std::minmax_element(f.begin(), f.end());
  const double tolerance = (*most - *least) / steps / 2, worth = (x.back() - x.front()) * kWorthIt;
  const int count = static_cast<int>(x.size());
  // Goes from an end inwards for as long as all values passed are within the tolerance of the function's value there.
  const auto flat = [&](int first, int step) {
    double low = f[first], high = f[first];
    int last = first;
    for (int i = first + step; i >= 0 && i < count; i += step) {
      low = std::min(low, f[i]);
      high = std::max(high, f[i]);
      if (high - f[i] > tolerance || f[i] - low > tolerance) break;
      last = i;
    }
    return std::abs(x[last] - x[first]) > worth ? last : first;
  };
  const int lo = flat(0, 1), hi = flat(count - 1, -1);
  if (lo >= hi) return {x.front(), x.back()};  // a constant
  return {x[lo], x[hi]};
}

}  // namespace

Interval told_apart(const Curve& curve, const Interval& values, int steps) {
  if (!(values.lo < values.hi)) return values;
  const std::vector<double> x = places({values});
  std::vector<double> f(x.size());
  std::transform(x.begin(), x.end(), f.begin(), [&](double at) { return evaluate(curve, at); });
  return told_apart(x, f, steps);
}

std::vector<Interval> told_apart(const std::vector<Interval>& nested, const Prepared& prepared,
                                 const std::vector<int>& lookups, const FloatParams& params) {
  if (lookups.empty()) return nested;
  const std::vector<double> x = places(nested);
  std::vector<double> f(x.size());
  std::vector<Interval> together(nested.size());
  for (size_t k = 0; k < nested.size(); ++k)
    together[k] = nested[k].lo < nested[k].hi ? Interval{nested[k].hi, nested[k].lo} : nested[k];
  for (const int lookup : lookups) {
    const Node& node = prepared.graph.nodes[lookup];
    const int steps = prepared.range[lookup].quant_max - prepared.range[lookup].quant_min;
    for (const CurveScale& scale : curve_scales(node, params)) {
      std::transform(x.begin(), x.end(), f.begin(), [&](double at) { return evaluate(node.curve, scale.input * at); });
      for (size_t k = 0; k < nested.size(); ++k) {
        if (!(nested[k].lo < nested[k].hi)) continue;
        const auto first = std::lower_bound(x.begin(), x.end(), nested[k].lo) - x.begin();
        const auto count = static_cast<size_t>(std::upper_bound(x.begin(), x.end(), nested[k].hi) - x.begin() - first);
        const Interval own = told_apart({x.data() + first, count}, {f.data() + first, count}, steps);
        together[k] = {std::min(together[k].lo, own.lo), std::max(together[k].hi, own.hi)};
      }
    }
  }
  return together;
}

Statistics clipped(const Statistics& statistics, const Interval& interval) {
  Statistics result = statistics;
  result.lo = std::clamp(statistics.lo, interval.lo, interval.hi);
  result.hi = std::clamp(statistics.hi, interval.lo, interval.hi);
  if (statistics.histogram.empty()) return result;
  const double width = bin_width(statistics);
  const auto bin = [&](double x) {
    return std::clamp(static_cast<int>(std::floor((x - statistics.histogram_lo) / width)), 0, kHistogramBins - 1);
  };
  const int first = bin(result.lo), last = bin(result.hi);
  for (int i = 0; i < kHistogramBins; ++i) {
    if (i >= first && i <= last) continue;
    result.histogram[i < first ? first : last] += statistics.histogram[i];
    result.histogram[i] = 0;
  }
  return result;
}

std::vector<std::vector<int>> only_lookups(const Prepared& prepared) {
  const std::vector<Node>& nodes = prepared.graph.nodes;
  const std::vector<std::vector<int>> readers = readers_of(prepared.graph);
  std::vector<std::vector<int>> lookups(nodes.size());
  const auto is_lookup = [&](int reader) { return reader != kUser && nodes[reader].op == Op::lookup; };
  for (size_t n = 0; n < nodes.size(); ++n)
    if (std::all_of(readers[n].begin(), readers[n].end(), is_lookup)) lookups[n] = readers[n];
  return lookups;
}

Statistics told_apart(const Statistics& statistics, const Prepared& prepared, const std::vector<int>& lookups,
                      const FloatParams& params) {
  if (lookups.empty()) return statistics;
  return clipped(statistics, told_apart({{statistics.lo, statistics.hi}}, prepared, lookups, params).front());
}

}  // namespace octet
