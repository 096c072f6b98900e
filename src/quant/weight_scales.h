// Scales of weights.
#pragma once

#include <array>
#include <vector>

#include "kernels/fake_quantize/weight_codes.h"
#include "src/common/named.h"
#include "src/quant/quant_spec.h"

namespace octet {

/// quant.weight_calibrator.
enum class WeightCalibrator {
  minmax,  ///< weight_scales() of the weights as they are
  mse,     ///< weight_scales_mse()
  lsq,     ///< parameters of the optimizer, which begin as mse gives them
};
inline constexpr std::array<Named<WeightCalibrator>, 3> kWeightCalibrators = {
    {{WeightCalibrator::minmax, "minmax"}, {WeightCalibrator::mse, "mse"}, {WeightCalibrator::lsq, "lsq"}}};

/// Whether its scales are, or begin as, weight_scales_mse() gives them; else as weight_scales() does.
inline bool least_squares(WeightCalibrator calibrator) { return calibrator != WeightCalibrator::minmax; }

/// Codes and scales of one weight.
struct WeightSpec {
  WeightCodes codes;
  Granularity granularity = Granularity::per_channel;
};

/// Per-output-channel (or one, repeated) weight scales: the least whose codes hold all values (max |w| / highest for
/// symmetric codes); an all-zero channel gets scale 1 / highest.
std::vector<float> weight_scales(const float* weight, int channels, long per_channel, const WeightSpec& spec);

/// Those of least squared error, by a search over shrink factors of the others.
std::vector<float> weight_scales_mse(const float* weight, int channels, long per_channel, const WeightSpec& spec);

}  // namespace octet
