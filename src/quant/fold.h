// BatchNorm and scales become multipliers and biases.
#pragma once

#include <vector>

#include "src/graph/graph.h"
#include "src/quant/float_params.h"

namespace octet {

/// Multiplier and bias of a convolution or linear with BatchNorm folded in, computed in double and rounded once:
///   g = gamma / sqrt(var + eps);  multiplier[k] = sx * sw[k] * g / sy;  bias[k] = (beta + (b - mean) * g) / sy
/// sy = 1 for float output. The one function that training, conversion and tests share. Throws Error(promise) on a
/// non-finite result.
struct Folded {
  std::vector<float> multiplier, bias;
};
Folded fold(const Node& node, const FloatParams& params, float x_scale, const std::vector<float>& weight_scale,
            float y_scale);

}  // namespace octet
