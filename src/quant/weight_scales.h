// Scales of weights.
#pragma once

#include <vector>

#include "kernels/fake_quantize/weight_codes.h"
#include "src/quant/quant_spec.h"

namespace octet {

/// Codes and scales of one weight.
struct WeightSpec {
  WeightCodes codes;
  Granularity granularity = Granularity::per_channel;
};

/// Per-output-channel (or one, repeated) weight scales: the least whose codes hold all values (max |w| / highest for
/// symmetric codes); an all-zero channel gets scale 1 / highest.
std::vector<float> weight_scales(const float* weight, int channels, long per_channel, const WeightSpec& spec);

}  // namespace octet
