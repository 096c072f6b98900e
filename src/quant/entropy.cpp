#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "src/quant/range_search.h"

namespace octet {
namespace {

constexpr int kBins = 2048;          // as in the paper
constexpr int kCandidateStride = 8;  // bins between the ranges that are tried

struct Distribution {
  double lo = 0, width = 1;
  std::vector<double> bins;
};

/// The histogram resampled to kBins over the range of the values; `fold`: of |x|.
Distribution resample(const Statistics& s, bool fold) {
  Distribution d;
  double hi = std::max(s.hi, 0.0);
  d.lo = std::min(s.lo, 0.0);
  if (fold) {
    hi = std::max(-d.lo, hi);
    d.lo = 0;
  }
  d.width = (hi - d.lo) / kBins;
  d.bins.assign(kBins, 0.0);
  const double source = (static_cast<double>(s.histogram_hi) - s.histogram_lo) / kHistogramBins;
  for (int i = 0; i < kHistogramBins; ++i) {
    if (s.histogram[i] == 0) continue;
    double a = s.histogram_lo + i * source, b = a + source;
    if (fold && a < 0) std::tie(a, b) = std::pair(-b, -a);
    // Position in new bins; what the outer bins reach beyond the values counts at the end.
    const double from = std::clamp((a - d.lo) / d.width, 0.0, kBins * 1.0),
                 to = std::clamp((b - d.lo) / d.width, 0.0, kBins * 1.0);
    if (to <= from) {
      d.bins[std::min(static_cast<int>(from), kBins - 1)] += s.histogram[i];
      continue;
    }
    for (int bin = static_cast<int>(from); bin < kBins && bin < to; ++bin) {
      const double share = std::min(to, bin + 1.0) - std::max(from, static_cast<double>(bin));
      d.bins[bin] += s.histogram[i] * share / (to - from);
    }
  }
  // Zero has a code of its own: the many zeros behind a ReLU, which no range rounds, must not decide.
  const int zero = std::min(static_cast<int>(-d.lo / d.width), kBins - 1);
  d.bins[zero] = std::min(d.bins[zero], d.bins[zero + 1 < kBins ? zero + 1 : zero - 1]);
  return d;
}

/// KL divergence of the bins [begin, end), which take the values outside at their ends, from what `levels` codes make
/// of them. At an end that takes outliers the codes may have no value at all; it then counts as one, so that few
/// outliers weigh little and many much.
double divergence(const std::vector<double>& bins, int begin, int end, int levels) {
  const int size = end - begin;
  std::vector<double> p(bins.begin() + begin, bins.begin() + end), q(static_cast<size_t>(size));
  for (int i = 0; i < begin; ++i) p.front() += bins[i];
  for (int i = end; i < kBins; ++i) p.back() += bins[i];
  for (int level = 0; level < levels; ++level) {
    const int from = static_cast<int>(static_cast<int64_t>(level) * size / levels);
    const int to = static_cast<int>(static_cast<int64_t>(level + 1) * size / levels);
    double sum = 0;
    int filled = 0;
    for (int i = from; i < to; ++i) {
      sum += bins[begin + i];
      filled += p[i] > 0;
    }
    for (int i = from; i < to; ++i) {
      if (p[i] > 0) q[i] = sum > 0 ? sum / filled : 1.0;
    }
  }
  double p_sum = 0, q_sum = 0, result = 0;
  for (int i = 0; i < size; ++i) {
    p_sum += p[i];
    q_sum += q[i];
  }
  for (int i = 0; i < size; ++i) {
    if (p[i] > 0) result += p[i] / p_sum * std::log(p[i] / p_sum / (q[i] / q_sum));
  }
  return result;
}

}  // namespace

ValueRange entropy_range(const Statistics& statistics, const QParams& range, bool affine) {
  const bool fold = !affine && range.is_signed();
  const Distribution d = resample(statistics, fold);
  const int levels = affine ? range.quant_max - range.quant_min + 1 : range.quant_max + 1;
  const double zero = -d.lo / d.width;  // position of zero, in bins
  ValueRange best{d.lo, d.lo + kBins * d.width};
  double least = INFINITY;
  for (int size = kBins; size >= std::max(levels, kCandidateStride); size -= kCandidateStride) {
    const double shrink = static_cast<double>(size) / kBins;
    const int begin = static_cast<int>(std::lround(zero * (1 - shrink)));
    const double value = divergence(d.bins, begin, begin + size, levels);
    if (value < least) {
      least = value;
      best = {d.lo + begin * d.width, d.lo + (begin + size) * d.width};
    }
  }
  return best;
}

}  // namespace octet
