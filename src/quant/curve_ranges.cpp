// SPDX-License-Identifier: Apache-2.0
#include "src/quant/curve_ranges.h"

#include <algorithm>
#include <cmath>

namespace octet {
namespace {

constexpr int kSamples = 4096;
constexpr int kWorthIt = kSamples / 50;  // an end that is not flat is within the tolerance for a few samples, too

}  // namespace

Interval told_apart(const Curve& curve, const Interval& values, int steps) {
  if (!(values.lo < values.hi)) return values;
  std::vector<double> f(kSamples + 1);
  const auto place = [&](int i) { return values.lo + (values.hi - values.lo) * i / kSamples; };
  for (int i = 0; i <= kSamples; ++i) f[i] = evaluate(curve, place(i));
  const auto [least, most] = std::minmax_element(f.begin(), f.end());
  const double tolerance = (*most - *least) / steps / 2;
  // Goes from an end inwards for as long as all values passed are within the tolerance of the function's value there.
  const auto flat = [&](int first, int step) {
    double low = f[first], high = f[first];
    int last = first;
    for (int i = first + step; i >= 0 && i <= kSamples; i += step) {
      low = std::min(low, f[i]);
      high = std::max(high, f[i]);
      if (high - f[i] > tolerance || f[i] - low > tolerance) break;
      last = i;
    }
    return std::abs(last - first) > kWorthIt ? last : first;
  };
  const int lo = flat(0, 1), hi = flat(kSamples, -1);
  if (lo >= hi) return values;  // a constant
  return {place(lo), place(hi)};
}

Statistics clipped(const Statistics& statistics, const Interval& interval) {
  Statistics result = statistics;
  result.lo = std::clamp(statistics.lo, interval.lo, interval.hi);
  result.hi = std::clamp(statistics.hi, interval.lo, interval.hi);
  if (statistics.histogram.empty()) return result;
  const double width = (static_cast<double>(statistics.histogram_hi) - statistics.histogram_lo) / kHistogramBins;
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
  std::vector<std::vector<int>> lookups(nodes.size());
  std::vector<bool> others(nodes.size(), false);
  for (const int output : prepared.graph.outputs) others[output] = true;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    for (const int input : nodes[n].inputs) {
      if (nodes[n].op == Op::lookup) {
        lookups[input].push_back(n);
      } else {
        others[input] = true;
      }
    }
  }
  for (size_t n = 0; n < nodes.size(); ++n)
    if (others[n]) lookups[n].clear();
  return lookups;
}

Statistics told_apart(const Statistics& statistics, const Prepared& prepared, const std::vector<int>& lookups,
                      const FloatParams& params) {
  if (lookups.empty()) return statistics;
  Interval together{statistics.hi, statistics.lo};
  for (const int lookup : lookups) {
    const Node& node = prepared.graph.nodes[lookup];
    const int steps = prepared.range[lookup].quant_max - prepared.range[lookup].quant_min;
    for (const CurveScale& scale : curve_scales(node, params)) {
      const double a = scale.input;
      const Interval own = told_apart(node.curve, {statistics.lo * a, statistics.hi * a}, steps);
      together = {std::min(together.lo, own.lo / a), std::max(together.hi, own.hi / a)};
    }
  }
  return clipped(statistics, together);
}

}  // namespace octet
