// SPDX-License-Identifier: Apache-2.0
#include "src/quant/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/training/observe.h"
#include "src/base/error.h"

namespace octet {
namespace {

/// A range of values, from which choose_qparams() makes scale and zero point.
struct ChosenRange {
  double lo = 0, hi = 0;
};

/// Returns the magnitude that `percentile` percent of the values do not exceed, interpolated linearly within a bin, as
/// NVIDIA's tools choose it: one tail after a ReLU, else both ends at the same distance from zero. Neither end lies
/// beyond the values.
ChosenRange percentile_range(const Statistics& s, double percentile) {
  if (!(percentile > 0 && percentile <= 100)) {
    throw usage_error("calibrate.percentile: " + std::to_string(percentile) + " is not in (0, 100]");
  }
  const double width = bin_width(s);
  const int below_zero = static_cast<int>(-s.histogram_lo / width);  // exact: edges are multiples of the width
  std::vector<double> magnitudes(std::max(below_zero, kHistogramBins - below_zero));
  double total = 0;
  for (int i = 0; i < kHistogramBins; ++i) {
    magnitudes[i < below_zero ? below_zero - 1 - i : i - below_zero] += s.histogram[i];
    total += s.histogram[i];
  }
  // Goes down from the largest magnitude until as many values as may lie outside are passed, and empty bins after them.
  double outside = total * (100 - percentile) / 100;
  size_t bin = magnitudes.size();
  for (; bin > 0 && magnitudes[bin - 1] <= outside; --bin) outside -= magnitudes[bin - 1];
  const double within = bin == 0 ? 0 : width * (static_cast<double>(bin) - outside / magnitudes[bin - 1]);
  return {std::clamp(-within, s.lo, s.hi), std::clamp(within, s.lo, s.hi)};  // an outer bin may end beyond the values
}

/// The filled bins of a histogram, cut to the observed values: counts[i] values spread evenly from ends[first[i]] to
/// the end after it. Neighbours share the end between them.
struct Slabs {
  explicit Slabs(const Statistics& s) {
    const double width = bin_width(s);
    for (int i = 0; i < kHistogramBins; ++i) {
      if (s.histogram[i] == 0) continue;
      const double edge = s.histogram_lo + i * width, lo = std::clamp(edge, s.lo, s.hi);
      if (ends.empty() || ends.back() != lo) ends.push_back(lo);
      first.push_back(ends.size() - 1);
      counts.push_back(s.histogram[i]);
      ends.push_back(std::clamp(edge + width, s.lo, s.hi));
    }
  }

  std::vector<double> ends, counts;
  std::vector<size_t> first;
};

/// The error of rounding to the levels first, first + step, ..., first + last * step, outside of which values clip.
class RoundingError {
 public:
  explicit RoundingError(const QParams& q)
      : step_(q.scale),
        first_(static_cast<double>(q.scale) * (q.quant_min - q.zero_point)),
        last_(q.quant_max - q.quant_min) {}

  /// Returns the sum over the values of (value - nearest level)^2. integrals: memory that the next call may use again.
  double operator()(const Slabs& slabs, std::vector<double>& integrals) const {
    integrals.resize(slabs.ends.size());
    for (size_t i = 0; i < integrals.size(); ++i) integrals[i] = integral(slabs.ends[i]);
    double sum = 0;
    for (size_t i = 0; i < slabs.counts.size(); ++i) {
      const size_t lo = slabs.first[i], hi = lo + 1;
      const double width = slabs.ends[hi] - slabs.ends[lo];
      if (width > 0) {
        sum += slabs.counts[i] * (integrals[hi] - integrals[lo]) / width;
      } else {
        sum += slabs.counts[i] * distance(slabs.ends[lo]) * distance(slabs.ends[lo]);
      }
    }
    return sum;
  }

 private:
  /// Truncates by way of an integer, which takes no call of a function.
  double level(double x) const { return static_cast<int>(std::min(std::max((x - first_) / step_, 0.0), last_) + 0.5); }
  double distance(double x) const { return x - first_ - level(x) * step_; }

  /// Returns the integral of the squared error from the first level to x: step^3 / 12 for each level passed, plus a
  /// third of the cube of the distance to the nearest level, which grows without bound beyond the last one.
  double integral(double x) const {
    const double d = distance(x);
    return level(x) * step_ * step_ * step_ / 12 + d * d * d / 3;
  }

  double step_, first_, last_;
};

/// Searches the ranges {lo * shrink, hi * shrink}: first with powers of 2^-1/4 down to 1/256 (with few bits or far
/// outliers the best range is a small part of the whole), then with ever smaller steps around the best, down to 1 %.
class Search {
 public:
  Search(const Statistics& s, const QParams& range, bool affine) : slabs_(s), range_(range), affine_(affine) {
    full_ = {std::min(s.lo, 0.0), std::max(s.hi, 0.0)};
    if (!affine) {
      full_.hi = range.is_signed() ? std::max(-full_.lo, full_.hi) : full_.hi;
      full_.lo = 0;
    }
  }

  ChosenRange run() {
    // An end at zero stays there.
    const int lo_steps = full_.lo < 0 ? kSteps : 0, hi_steps = full_.hi > 0 ? kSteps : 0;
    for (int i = 0; i <= lo_steps; ++i) {
      for (int j = 0; j <= hi_steps; ++j) attempt({i * kCoarse, j * kCoarse});
    }
    for (double step = kCoarse / 2; step > kFine; step /= 2) {
      for (bool better = true; better;) {
        const Shrink centre = best_;
        better = false;
        for (const double lo : {-step, 0.0, step}) {
          for (const double hi : {-step, 0.0, step}) {
            if ((lo_steps == 0 && lo != 0) || (hi_steps == 0 && hi != 0)) continue;
            better = attempt({centre.lo + lo, centre.hi + hi}) || better;
          }
        }
      }
    }
    return range_of(best_);
  }

 private:
  struct Shrink {
    double lo = 0, hi = 0;  ///< each end is multiplied by 2^-lo or 2^-hi
  };
  static constexpr double kCoarse = 0.25, kFine = 0.01;
  static constexpr int kSteps = 32;

  ChosenRange range_of(const Shrink& shrink) const {
    return {full_.lo * std::exp2(-shrink.lo), full_.hi * std::exp2(-shrink.hi)};
  }

  bool attempt(const Shrink& shrink) {
    if (shrink.lo < 0 || shrink.hi < 0) return false;
    const ChosenRange range = range_of(shrink);
    const QParams q = choose_qparams(static_cast<float>(range.lo), static_cast<float>(range.hi), range_, affine_);
    const double error = RoundingError(q)(slabs_, integrals_);
    if (error >= least_) return false;
    least_ = error;
    best_ = shrink;
    return true;
  }

  const Slabs slabs_;
  std::vector<double> integrals_;
  const QParams range_;
  const bool affine_;
  ChosenRange full_;
  Shrink best_;
  double least_ = INFINITY;
};

/// Returns the range with the least expected squared error of quantizing and dequantizing, for values that are uniform
/// within their bins: the integral is exact, so steps may be finer than bins. Affine codes search both ends, others
/// their common magnitude.
ChosenRange least_squares_range(const Statistics& statistics, const QParams& range, bool affine) {
  return Search(statistics, range, affine).run();
}

constexpr int kMaxBins = 2048;  // as in the paper
constexpr int kNarrowest = 16;  // the narrowest range that is tried has 1/16 of the bins, as in NVIDIA's tools

/// The histogram of x, or of |x|: bins from the lowest to the highest value, zero among them.
struct Distribution {
  double width = 1;
  int zero = 0;  ///< the bin that begins at zero
  std::vector<double> bins;
};

/// Returns the histogram of x, or with `fold` of |x|, after merging pairs of bins until at most kMaxBins are left.
Distribution distribution_of(const Statistics& s, bool fold) {
  const double width = bin_width(s);
  const double lo = fold ? 0 : std::min(s.lo, 0.0), hi = std::max(fold ? -s.lo : 0.0, s.hi);
  const auto reach = [](double end, double of) { return static_cast<int>(std::floor(end / of)); };
  Distribution d;
  for (d.width = width; reach(hi, d.width) - reach(lo, d.width) >= kMaxBins;) d.width *= 2;
  d.zero = -reach(lo, d.width);
  d.bins.assign(reach(hi, d.width) + d.zero + 1, 0.0);
  for (int i = 0; i < kHistogramBins; ++i) {
    if (s.histogram[i] == 0) continue;
    const double middle = s.histogram_lo + (i + 0.5) * width;  // stays in its bin when bins fold or merge
    d.bins[reach(fold ? std::fabs(middle) : middle, d.width) + d.zero] += s.histogram[i];
  }
  // Every range represents zero exactly: the many zeros behind a ReLU must not decide which range is best.
  const int beside = d.zero + 1 < static_cast<int>(d.bins.size()) ? d.zero + 1 : std::max(d.zero - 1, 0);
  d.bins[d.zero] = d.bins[beside];
  return d;
}

/// The bins of a distribution with sums over them, by which ranges are compared without going through their bins.
class Divergence {
 public:
  explicit Divergence(const std::vector<double>& bins)
      : bins_(bins), counts_(bins.size() + 1), filled_(bins.size() + 1), logs_(bins.size() + 1) {
    for (size_t i = 0; i < bins.size(); ++i) {
      counts_[i + 1] = counts_[i] + bins[i];
      filled_[i + 1] = filled_[i] + (bins[i] > 0);
      logs_[i + 1] = logs_[i] + times_log(bins[i]);
    }
  }

  /// Returns the KL divergence of p, the bins [begin, end) with all values outside added to the two end bins, from q,
  /// what `levels` codes make of the values inside. Unlike in the paper q is not scaled up to the sum of p, which adds
  /// -log(1 - share of the values outside): scaled up, a range that clips nearly everything to one value would have
  /// divergence 0. The result is infinite where an end bin takes outliers but is empty itself.
  double operator()(int begin, int end, int levels) const {
    const int size = end - begin;
    const auto first_of = [&](int level) {
      return begin + static_cast<int>((static_cast<int64_t>(level) * size + levels - 1) / levels);
    };
    const double below = counts_[begin], above = counts_.back() - counts_[end];
    if ((below > 0 && bins_[begin] == 0) || (above > 0 && bins_[end - 1] == 0)) return INFINITY;
    double p_log_p = logs_[end] - logs_[begin], p_log_q = 0;
    const auto add_outside = [&](int bin, double outside) {
      p_log_p += times_log(bins_[bin] + outside) - times_log(bins_[bin]);
    };
    if (size == 1) {
      add_outside(begin, below + above);
    } else {
      add_outside(begin, below);
      add_outside(end - 1, above);
    }
    for (int level = 0; level < levels; ++level) {
      const int from = first_of(level), to = first_of(level + 1);
      const double sum = counts_[to] - counts_[from];
      if (sum == 0) continue;
      const double p = sum + (from == begin ? below : 0) + (to == end ? above : 0);
      p_log_q += p * std::log(sum / (filled_[to] - filled_[from]));
    }
    return (p_log_p - p_log_q) / counts_.back();
  }

 private:
  static double times_log(double x) { return x > 0 ? x * std::log(x) : 0; }

  const std::vector<double>& bins_;
  std::vector<double> counts_, filled_,
      logs_;  ///< sums over the bins before: of values, filled bins, count * log(count)
};

/// Migacz, "8-bit inference with TensorRT", GTC 2017: returns the clipped range whose distribution, merged into as many
/// levels as there are codes and spread out again, has the least KL divergence from the clipped original, over 2048
/// bins. Signed codes use the histogram of |x|; affine codes shrink both ends alike. No end lies beyond the values.
ChosenRange entropy_range(const Statistics& statistics, const QParams& range, bool affine) {
  const bool fold = !affine && range.is_signed();
  const Distribution d = distribution_of(statistics, fold);
  const int levels = affine ? range.quant_max - range.quant_min + 1 : range.quant_max + 1;
  const int all = static_cast<int>(d.bins.size());
  ChosenRange best{statistics.lo, statistics.hi};
  double least = INFINITY;
  const Divergence divergence(d.bins);
  for (int size = all; size * kNarrowest >= all; --size) {
    const int begin = static_cast<int>(std::lround(d.zero * (1 - static_cast<double>(size) / all)));
    const double value = divergence(begin, begin + size, levels);
    if (value < least) {
      least = value;
      best = {(begin - d.zero) * d.width, (begin + size - d.zero) * d.width};
    }
  }
  const double low = fold ? 0.0 : std::min(statistics.lo, 0.0);
  const double high = std::max(fold ? -statistics.lo : 0.0, statistics.hi);
  return {std::clamp(best.lo, low, high), std::clamp(best.hi, low, high)};
}

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

QParams choose_qparams(double lo, double hi, const QParams& range, bool affine) {
  if (!std::isfinite(lo) || !std::isfinite(hi) || lo > hi) {
    throw promise_error("qparams: [" + std::to_string(lo) + ", " + std::to_string(hi) +
                        "] is no range of values; was the edge observed?");
  }
  return kernels::qparams_of_range(lo, hi, range, affine);
}

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
