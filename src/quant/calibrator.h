// Observers collect statistics of an edge; calibrators turn them into a range. No LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/observe/histogram_bins.h"
#include "src/common/named.h"

namespace octet {

/// Running statistics of one edge; which ones are kept depends on the observer.
struct Statistics {
  double lo = 0, hi = 0;          ///< minimum and maximum, or their moving averages
  int seen = 0;                   ///< batches, as kernels::RunningRange counts them
  std::vector<double> histogram;  ///< kHistogramBins counts over [histogram_lo, histogram_hi]; empty if not kept
  float histogram_lo = 0, histogram_hi = 0;
};

/// Bins are a power of two wide, with edges at its multiples. When a value falls outside, the width doubles and pairs
/// of bins merge: counts are never split, and the histogram does not depend on the order or size of batches. Between
/// half and all of the bins are in use.
inline constexpr int kHistogramBins = kernels::kEdgeBins;

enum class ObserverKind { minmax, moving_average, histogram };
inline constexpr std::array<Named<ObserverKind>, 3> kObserverKinds = {{{ObserverKind::minmax, "minmax"},
                                                                       {ObserverKind::moving_average, "moving_average"},
                                                                       {ObserverKind::histogram, "histogram"}}};

/// Serializable through statistics(); deterministic: the result depends on the values and the order of batches only.
class Observer {
 public:
  explicit Observer(ObserverKind kind, double averaging = 0.01) : kind_(kind), averaging_(averaging) {}
  void observe(const float* x, size_t count);  ///< throws Error(promise) on NaN, infinity and values beyond 1e30
  /// As if it had observed those values, too; of minmax and histogram, whatever the order, the same bits. Throws
  /// Error(promise) for a moving average, which follows an order.
  void add(const Statistics& others);
  const Statistics& statistics() const { return statistics_; }
  /// Throws Error(data) for statistics that no observer can have collected: they may come from a file.
  void restore(const Statistics& statistics);
  /// As kernels::follow() takes it: 0 for minmax and histogram.
  double averaging() const { return kind_ == ObserverKind::moving_average ? averaging_ : 0; }

 private:
  ObserverKind kind_;
  double averaging_;
  Statistics statistics_;
};

/// Where the scales of edges come from during QAT; quant.scales.
enum class EdgeScales {
  fixed,     ///< as calibrated
  observed,  ///< observers see every batch, and scales follow
  // Parameters of the optimizer (kernels/fake_quantize/learned_range.h):
  lsq,       ///< scales
  lsq_plus,  ///< scales and offsets, which give the zero points
  pact,      ///< clipping levels
};
inline constexpr std::array<Named<EdgeScales>, 5> kEdgeScales = {{{EdgeScales::fixed, "fixed"},
                                                                  {EdgeScales::observed, "observed"},
                                                                  {EdgeScales::lsq, "lsq"},
                                                                  {EdgeScales::lsq_plus, "lsq_plus"},
                                                                  {EdgeScales::pact, "pact"}}};

/// Whether ranges are parameters of the optimizer.
inline bool learn(EdgeScales scales) { return scales != EdgeScales::fixed && scales != EdgeScales::observed; }

enum class CalibrationMethod { minmax, percentile, mse, entropy };
inline constexpr std::array<Named<CalibrationMethod>, 4> kCalibrationMethods = {
    {{CalibrationMethod::minmax, "minmax"},
     {CalibrationMethod::percentile, "percentile"},
     {CalibrationMethod::mse, "mse"},
     {CalibrationMethod::entropy, "entropy"}}};

/// minmax: the observed range. percentile: that share of the values has a magnitude within the range. mse: the
/// range with the least squared quantization error over the histogram. entropy: least KL divergence between the
/// histogram and its quantized version (Migacz, "8-bit inference with TensorRT", GTC 2017).
QParams calibrate(const Statistics& statistics, CalibrationMethod method, double percentile, const QParams& range,
                  bool affine);

/// How far from zero the codes of an edge reach, and 99.9 % of its values. values 0: no histogram, or nothing but
/// zeros.
struct Reach {
  double codes = 0, values = 0;
};
Reach reach_of(const Statistics& statistics, const QParams& q);

}  // namespace octet
