#include "src/quant/calibrator.h"

#include <algorithm>
#include <string>

#include "src/common/error.h"
#include "src/quant/qparams.h"
#include "src/quant/range_search.h"

namespace octet {

ChosenRange percentile_range(const Statistics& s, double percentile) {
  if (!(percentile > 0 && percentile <= 100)) {
    throw usage_error("calibrate.percentile: " + std::to_string(percentile) + " is not in (0, 100]");
  }
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  const int below_zero = static_cast<int>(-s.histogram_lo / width);  // exact: edges are multiples of the width
  std::vector<double> magnitudes(std::max(below_zero, kHistogramBins - below_zero));
  double total = 0;
  for (int i = 0; i < kHistogramBins; ++i) {
    magnitudes[i < below_zero ? below_zero - 1 - i : i - below_zero] += s.histogram[i];
    total += s.histogram[i];
  }
  // Down from the largest magnitude, past as many values as lie outside and the empty bins behind them.
  double outside = total * (100 - percentile) / 100;
  size_t bin = magnitudes.size();
  for (; bin > 0 && magnitudes[bin - 1] <= outside; --bin) outside -= magnitudes[bin - 1];
  const double within = bin == 0 ? 0 : width * (static_cast<double>(bin) - outside / magnitudes[bin - 1]);
  return {std::clamp(-within, s.lo, s.hi), std::clamp(within, s.lo, s.hi)};  // outer bins reach beyond the values
}

namespace {

ChosenRange value_range(const Statistics& s, CalibrationMethod method, double percentile, const QParams& range,
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
  ChosenRange best{statistics.lo, statistics.hi};
  if (statistics.lo != 0 || statistics.hi != 0) best = value_range(statistics, method, percentile, range, affine);
  return choose_qparams(static_cast<float>(best.lo), static_cast<float>(best.hi), range, affine);
}

Reach reach_of(const Statistics& statistics, const QParams& q) {
  if (statistics.histogram.size() != kHistogramBins) return {};
  const ChosenRange most = percentile_range(statistics, 99.9);
  const double above = q.scale * (static_cast<double>(q.quant_max) - q.zero_point),
               below = q.scale * (static_cast<double>(q.zero_point) - q.quant_min);
  return {std::max(above, below), std::max(-most.lo, most.hi)};
}

}  // namespace octet
