#include <algorithm>
#include <cmath>
#include <vector>

#include "src/quant/qparams.h"
#include "src/quant/range_search.h"

namespace octet {
namespace {

/// A part of the histogram: `count` values spread evenly over [lo, hi].
struct Slab {
  double lo, hi, count;
};

std::vector<Slab> slabs(const Statistics& s) {
  std::vector<Slab> result;
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  for (int i = 0; i < kHistogramBins; ++i) {
    if (s.histogram[i] == 0) continue;
    const double edge = s.histogram_lo + i * width;
    // The outer bins reach further than the values.
    result.push_back({std::clamp(edge, s.lo, s.hi), std::clamp(edge + width, s.lo, s.hi), s.histogram[i]});
  }
  return result;
}

/// Error of rounding to the levels first, first + step, ..., first + last * step.
class RoundingError {
 public:
  explicit RoundingError(const QParams& q)
      : step_(q.scale),
        first_(static_cast<double>(q.scale) * (q.quant_min - q.zero_point)),
        last_(q.quant_max - q.quant_min) {}

  /// Sum over the values of (value - nearest level)^2.
  double operator()(const std::vector<Slab>& slabs) const {
    double sum = 0;
    for (const Slab& slab : slabs) {
      const double width = slab.hi - slab.lo;
      if (width > 0) {
        sum += slab.count * (integral(slab.hi) - integral(slab.lo)) / width;
      } else {
        sum += slab.count * distance(slab.lo) * distance(slab.lo);
      }
    }
    return sum;
  }

 private:
  double level(double x) const { return std::trunc(std::clamp((x - first_) / step_, 0.0, last_) + 0.5); }
  double distance(double x) const { return x - first_ - level(x) * step_; }

  /// Integral of the squared distance from the first level to x: step^3 / 12 for each level passed, and the cube of the
  /// distance to the nearest one, which beyond the last level grows without end.
  double integral(double x) const {
    const double d = distance(x);
    return level(x) * step_ * step_ * step_ / 12 + d * d * d / 3;
  }

  double step_, first_, last_;
};

/// Best of all ranges {lo * shrink, hi * shrink}, shrink a power of 2^-1/4 down to 1/256 (few bits and far outliers
/// want little of the range), then of ever smaller steps around the best until they are 1 %.
class Search {
 public:
  Search(const Statistics& s, const QParams& range, bool affine) : slabs_(slabs(s)), range_(range), affine_(affine) {
    full_ = {std::min(s.lo, 0.0), std::max(s.hi, 0.0)};
    if (!affine) {
      full_.hi = range.is_signed() ? std::max(-full_.lo, full_.hi) : full_.hi;
      full_.lo = 0;
    }
  }

  ChosenRange run() {
    // An end at zero has nothing to search.
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
    double lo = 0, hi = 0;  ///< powers of 1/2
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
    const double error = RoundingError(q)(slabs_);
    if (error >= least_) return false;
    least_ = error;
    best_ = shrink;
    return true;
  }

  const std::vector<Slab> slabs_;
  const QParams range_;
  const bool affine_;
  ChosenRange full_;
  Shrink best_;
  double least_ = INFINITY;
};

}  // namespace

ChosenRange least_squares_range(const Statistics& statistics, const QParams& range, bool affine) {
  return Search(statistics, range, affine).run();
}

}  // namespace octet
