// SPDX-License-Identifier: Apache-2.0
#include "src/quant/functions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "src/base/error.h"

namespace octet {
namespace {

constexpr int kSamples = 4096;     // of an interval
constexpr int kWithin = 64;        // more of each interval within it, which has those of wider ones, too
constexpr double kWorthIt = 0.02;  // an end that is not flat is within the tolerance for a few samples, too

/// Returns where a function is to be evaluated for intervals within each other, in ascending order.
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

/// Returns told_apart() of the values x, in ascending order, of which the function makes f.
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

Interval told_apart(const Function& function, const Interval& values, int steps) {
  if (!(values.lo < values.hi)) return values;
  const std::vector<double> x = places({values});
  std::vector<double> f(x.size());
  std::transform(x.begin(), x.end(), f.begin(), [&](double at) { return evaluate(function, at); });
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
    for (const FunctionScale& scale : function_scales(node, params)) {
      std::transform(x.begin(), x.end(), f.begin(),
                     [&](double at) { return evaluate(node.function, scale.input * at); });
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
