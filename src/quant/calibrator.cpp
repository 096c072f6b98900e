#include "src/quant/calibrator.h"

#include <algorithm>
#include <string>

#include "src/common/error.h"
#include "src/quant/range_search.h"

namespace octet {

ValueRange percentile_range(const Statistics& s, double percentile) {
  if (!(percentile > 0 && percentile <= 100)) {
    throw usage_error("calibrate.percentile: " + std::to_string(percentile) + " is not in (0, 100]");
  }
  double total = 0;
  for (const double count : s.histogram) total += count;
  const double tail = total * (100 - percentile) / 200;
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  // Distance from one end of the histogram to the point that `tail` values lie before.
  const auto cut = [&](auto bin, auto end) {
    double left = tail, distance = 0;
    for (; bin != end && *bin <= left; ++bin, distance += width) left -= *bin;
    return bin == end ? distance : distance + width * left / *bin;
  };
  const double lo = s.histogram_lo + cut(s.histogram.begin(), s.histogram.end());
  const double hi = s.histogram_hi - cut(s.histogram.rbegin(), s.histogram.rend());
  const double low = s.lo, high = s.hi;  // the outer bins reach further than the values
  return {std::clamp(lo, low, high), std::clamp(hi, low, high)};
}

namespace {

ValueRange value_range(const Statistics& s, CalibrationMethod method, double percentile, const QParams& range,
                       bool affine) {
  switch (method) {
    case CalibrationMethod::percentile:
      return percentile_range(s, percentile);
    case CalibrationMethod::mse:
      return least_squares_range(s, range, affine);
    case CalibrationMethod::entropy:
      return entropy_range(s, range, affine);
    case CalibrationMethod::minmax:
      break;
  }
  return {s.lo, s.hi};
}

}  // namespace

QParams calibrate(const Statistics& statistics, CalibrationMethod method, double percentile, const QParams& range,
                  bool affine) {
  if (statistics.seen == 0) throw promise_error("calibrate: an edge was never observed");
  if (method != CalibrationMethod::minmax && statistics.histogram.size() != kHistogramBins) {
    throw usage_error("calibrate: percentile, mse and entropy need a histogram observer");
  }
  ValueRange best{statistics.lo, statistics.hi};
  if (statistics.lo != 0 || statistics.hi != 0) best = value_range(statistics, method, percentile, range, affine);
  return choose_qparams(static_cast<float>(best.lo), static_cast<float>(best.hi), range, affine);
}

}  // namespace octet
