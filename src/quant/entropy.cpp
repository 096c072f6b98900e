#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "src/quant/range_search.h"

namespace octet {
namespace {

constexpr int kMostBins = 2048;  // as in the paper
constexpr int kNarrowest = 16;   // share of the bins in the narrowest range that is tried, as in NVIDIA's tools

/// The histogram of x, or with `fold` of |x|: bins from the lowest to the highest value, zero among them.
struct Distribution {
  double width = 1;
  int zero = 0;  ///< the bin that begins at zero
  std::vector<double> bins;
};

/// Pairs of bins merge until there are few enough: none is split.
Distribution distribution_of(const Statistics& s, bool fold) {
  const double width = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  const double lo = fold ? 0 : std::min(s.lo, 0.0), hi = std::max(fold ? -s.lo : 0.0, s.hi);
  const auto reach = [](double end, double of) { return static_cast<int>(std::floor(end / of)); };
  Distribution d;
  for (d.width = width; reach(hi, d.width) - reach(lo, d.width) >= kMostBins;) d.width *= 2;
  d.zero = -reach(lo, d.width);
  d.bins.assign(reach(hi, d.width) + d.zero + 1, 0.0);
  for (int i = 0; i < kHistogramBins; ++i) {
    if (s.histogram[i] == 0) continue;
    const double middle = s.histogram_lo + (i + 0.5) * width;  // which no fold and no merging moves to another bin
    d.bins[reach(fold ? std::fabs(middle) : middle, d.width) + d.zero] += s.histogram[i];
  }
  // Zero has a code of its own: the many zeros behind a ReLU, which no range rounds, must not decide.
  const int beside = d.zero + 1 < static_cast<int>(d.bins.size()) ? d.zero + 1 : std::max(d.zero - 1, 0);
  d.bins[d.zero] = d.bins[beside];
  return d;
}

/// KL divergence of the bins [begin, end), which take the values outside at their ends, from what `levels` codes make
/// of the values within. The values outside are missing there, and the rest is not scaled up to stand for them as in
/// the paper: that adds -log(1 - their share). Scaled up, one value in the last bin would stand for all that a range
/// clips, and the divergence of a range that clips nearly everything would be 0. Infinite where an end takes outliers
/// but is empty itself: a narrower range clips no more.
double divergence(const std::vector<double>& bins, int begin, int end, int levels) {
  const int size = end - begin;
  std::vector<double> p(bins.begin() + begin, bins.begin() + end), q(static_cast<size_t>(size));
  for (int i = 0; i < begin; ++i) p.front() += bins[i];
  for (size_t i = end; i < bins.size(); ++i) p.back() += bins[i];
  const auto first_of = [&](int level) {
    return static_cast<int>((static_cast<int64_t>(level) * size + levels - 1) / levels);
  };
  for (int level = 0; level < levels; ++level) {
    const int from = first_of(level), to = first_of(level + 1);
    double sum = 0;
    int filled = 0;
    for (int i = from; i < to; ++i) {
      sum += bins[begin + i];
      filled += bins[begin + i] > 0;
    }
    for (int i = from; i < to; ++i) {
      if (bins[begin + i] > 0) q[i] = sum / filled;
    }
  }
  double total = 0, result = 0;
  for (const double count : bins) total += count;
  for (int i = 0; i < size; ++i) {
    if (p[i] == 0) continue;
    if (q[i] == 0) return INFINITY;
    result += p[i] / total * std::log(p[i] / q[i]);
  }
  return result;
}

}  // namespace

ChosenRange entropy_range(const Statistics& statistics, const QParams& range, bool affine) {
  const bool fold = !affine && range.is_signed();
  const Distribution d = distribution_of(statistics, fold);
  const int levels = affine ? range.quant_max - range.quant_min + 1 : range.quant_max + 1;
  const int all = static_cast<int>(d.bins.size());
  ChosenRange best{statistics.lo, statistics.hi};
  double least = INFINITY;
  for (int size = all; size * kNarrowest >= all; --size) {
    const int begin = static_cast<int>(std::lround(d.zero * (1 - static_cast<double>(size) / all)));
    const double value = divergence(d.bins, begin, begin + size, levels);
    if (value < least) {
      least = value;
      best = {(begin - d.zero) * d.width, (begin + size - d.zero) * d.width};
    }
  }
  // The outer bins reach beyond the values.
  const double low = fold ? 0.0 : std::min(statistics.lo, 0.0);
  const double high = std::max(fold ? -statistics.lo : 0.0, statistics.hi);
  return {std::clamp(best.lo, low, high), std::clamp(best.hi, low, high)};
}

}  // namespace octet
