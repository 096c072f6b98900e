// SPDX-License-Identifier: Apache-2.0
#include "src/quant/curves.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "src/base/error.h"

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

std::vector<CurveScale> curve_scales(const Node& node, const FloatParams& params) {
  std::vector<CurveScale> scales(static_cast<size_t>(node.groups));
  if (scales.size() == 1) return scales;
  const std::vector<float>& input = find_parameter(params, node.name + ".input_scale", scales.size());
  const std::vector<float>& output = find_parameter(params, node.name + ".output_scale", scales.size());
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] = {input[c], output[c]};
    for (const float scale : {input[c], output[c]})
      if (!(scale > 0) || !std::isfinite(scale))
        throw promise_error("'" + node.name + "': the scale " + std::to_string(scale) + " of channel " +
                            std::to_string(c) + " is not a positive finite number");
  }
  return scales;
}

std::vector<uint8_t> lookup_tables(const Curve& curve, const std::vector<CurveScale>& scales, const QParams& x,
                                   const QParams& y, const CodeBounds& bounds) {
  std::vector<uint8_t> tables;
  for (const CurveScale& scale : scales) {
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t code = x.is_signed() ? static_cast<int8_t>(byte) : byte;
      const double real = scale.output * evaluate(curve, scale.input * static_cast<double>(dequantize(code, x)));
      tables.push_back(static_cast<uint8_t>(std::clamp(quantize(static_cast<float>(real), y), bounds.lo, bounds.hi)));
    }
  }
  return tables;
}

}  // namespace octet
