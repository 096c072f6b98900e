// SPDX-License-Identifier: Apache-2.0
// From the values of an edge to its scale and zero point: observers collect statistics, calibration chooses a range
// from them, and a range gives scale and zero point. No LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "kernels/core/quantize.h"
#include "kernels/training/observe.h"
#include "src/base/names.h"
#include "src/quant/node_constants.h"

namespace octet {

/// Number of histogram bins. Bins are a power of two wide, with edges at multiples of the width. When a value falls
/// outside, the width doubles and pairs of bins merge: counts are never split, and the histogram does not depend on the
/// order or size of batches. Between half and all of the bins are in use.
inline constexpr int kHistogramBins = kernels::kEdgeBins;

/// Running statistics of one edge.
struct Statistics {
  double lo = 0, hi = 0;          ///< minimum and maximum, or their moving averages
  int seen = 0;                   ///< number of batches, as kernels::RunningRange counts them
  std::vector<double> histogram;  ///< kHistogramBins counts over [histogram_lo, histogram_hi]; empty if not kept
  float histogram_lo = 0, histogram_hi = 0;
};

/// Returns the width of a histogram's bins.
double bin_width(const Statistics& statistics);

/// What an observer keeps: minimum and maximum; their moving averages; or minimum, maximum and a histogram.
enum class ObserverKind { minmax, moving_average, histogram };
inline constexpr std::array<Named<ObserverKind>, 3> kObserverKinds = {{{ObserverKind::minmax, "minmax"},
                                                                       {ObserverKind::moving_average, "moving_average"},
                                                                       {ObserverKind::histogram, "histogram"}}};

/// Collects the statistics of one edge. They depend on the values and on the order of batches only, and can be saved
/// and restored.
class Observer {
 public:
  /// `averaging` is the weight of a new batch in a moving average.
  explicit Observer(ObserverKind kind, double averaging = 0.01) : kind_(kind), averaging_(averaging) {}
  /// Adds a batch of values. Throws Error(promise) for NaN, infinity and magnitudes above 1e30.
  void observe(const float* x, size_t count);
  /// Adds what another observer has seen. For minmax and histogram the result has the same bits as if this observer had
  /// seen those values, in any order. Throws Error(promise) for a moving average, which depends on the order.
  void add(const Statistics& others);
  const Statistics& statistics() const { return statistics_; }
  /// Throws Error(data) for statistics that no observer can have collected: they may come from a damaged file.
  void restore(const Statistics& statistics);
  /// The weight that kernels::follow() takes; 0 for minmax and histogram.
  double averaging() const { return kind_ == ObserverKind::moving_average ? averaging_ : 0; }

 private:
  ObserverKind kind_;
  double averaging_;
  Statistics statistics_;
};

/// Where the scales of edges come from during QAT: the recipe's quant.scales.
enum class EdgeScales {
  fixed,     ///< calibration sets them
  observed,  ///< observers see every batch, and scales follow
  // Parameters that the optimizer trains (kernels/training/learned_range.h):
  lsq,       ///< scales
  lsq_plus,  ///< scales, and offsets, which give the zero points
};
inline constexpr std::array<Named<EdgeScales>, 4> kEdgeScales = {{{EdgeScales::fixed, "fixed"},
                                                                  {EdgeScales::observed, "observed"},
                                                                  {EdgeScales::lsq, "lsq"},
                                                                  {EdgeScales::lsq_plus, "lsq_plus"}}};

/// How QAT's forward pass computes once BatchNorm's statistics are fixed: as a simulation in floats, or by the engine's
/// kernels on codes (src/train/qat/int8_forward.h).
enum class QatForward { simulation, int8 };
inline constexpr std::array<Named<QatForward>, 2> kQatForwards = {
    {{QatForward::simulation, "simulation"}, {QatForward::int8, "int8"}}};

/// The fewest bits of a layer's output with which QatForward::int8 trains: where codes end, the code alone tells
/// whether the gradient passes, and the fewer codes there are, the more values have the first or the last.
inline constexpr int kFewestBitsOnCodes = 4;

/// Returns whether the optimizer trains the ranges of edges.
inline bool learn(EdgeScales scales) { return scales != EdgeScales::fixed && scales != EdgeScales::observed; }

/// How calibrate() chooses the range of an edge.
enum class CalibrationMethod {
  minmax,      ///< all observed values
  percentile,  ///< the magnitude that the given share of the values does not exceed
  mse,         ///< least squared quantization error over the histogram
  entropy      ///< least KL divergence between the histogram and its quantized form
};
inline constexpr std::array<Named<CalibrationMethod>, 4> kCalibrationMethods = {
    {{CalibrationMethod::minmax, "minmax"},
     {CalibrationMethod::percentile, "percentile"},
     {CalibrationMethod::mse, "mse"},
     {CalibrationMethod::entropy, "entropy"}}};

/// Returns the scale and zero point of an edge whose values lie in [lo, hi], which is widened to hold zero; zero always
/// has a code of its own. Symmetric: scale = max(|lo|, |hi|) / quant_max (unsigned: hi / quant_max). Affine:
/// scale = (hi - lo) / (quant_max - quant_min), zero_point = clamp(rint(quant_min - lo / scale)) (Jacob et al. 2018,
/// eq. 3; rounding it moves both ends by up to half a step). lo = hi = 0, an edge of zeros, gets the scale of [0, 1].
/// Throws Error(promise) for lo > hi and for ends that are not finite.
QParams choose_qparams(double lo, double hi, const QParams& range, bool affine);

/// Returns the scale and zero point that `method` chooses. `range` has the codes of the edge, `affine` says whether its
/// zero point is free, `percentile` is in (0, 100]. Throws Error(promise) for an edge that was never observed and
/// Error(usage) for a method other than minmax without a histogram.
QParams calibrate(const Statistics& statistics, CalibrationMethod method, double percentile, const QParams& range,
                  bool affine);

/// Max magnitudes of an edge: of what its codes can represent, and of 99.9 % of its values. `values` is 0 without a
/// histogram, or where all values are zeros.
struct Reach {
  double codes = 0, values = 0;
};
Reach reach_of(const Statistics& statistics, const QParams& q);

}  // namespace octet
