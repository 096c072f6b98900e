// SPDX-License-Identifier: Apache-2.0
// The scales of weights: from the largest weight, or of least squared error.
#pragma once

#include <array>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/base/names.h"
#include "src/quant/plan.h"

namespace octet {

/// How the scales of weights are found: the recipe's quant.weight_calibrator.
enum class WeightCalibrator {
  minmax,  ///< weight_scales()
  mse,     ///< weight_scales_mse()
  lsq,     ///< the optimizer trains them, from those of mse on
};
inline constexpr std::array<Named<WeightCalibrator>, 3> kWeightCalibrators = {
    {{WeightCalibrator::minmax, "minmax"}, {WeightCalibrator::mse, "mse"}, {WeightCalibrator::lsq, "lsq"}}};

/// Returns whether scales are, or start as, those of weight_scales_mse() rather than of weight_scales().
inline bool least_squares(WeightCalibrator calibrator) { return calibrator != WeightCalibrator::minmax; }

/// The codes of one weight tensor, and how many scales it has.
struct WeightSpec {
  WeightCodes codes;
  Granularity granularity = Granularity::per_channel;
};

/// Returns the scale of each output channel of `weight`, [channels, per_channel]; with Granularity::per_tensor all are
/// equal. It is the smallest scale whose codes hold all values (max |w| / highest for symmetric codes), and 1 / highest
/// for a channel of zeros.
std::vector<float> weight_scales(const float* weight, int channels, long per_channel, const WeightSpec& spec);

/// Returns the scales of least squared error, found by shrinking those of weight_scales().
std::vector<float> weight_scales_mse(const float* weight, int channels, long per_channel, const WeightSpec& spec);

}  // namespace octet
