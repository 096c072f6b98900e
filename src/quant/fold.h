// BatchNorm and scales become multipliers and biases.
#pragma once

#include <vector>

#include "src/graph/graph.h"
#include "src/quant/float_params.h"

namespace octet {

/// Multiplier and bias of a convolution or linear with BatchNorm folded in, computed in double:
///   g = gamma / sqrt(var + eps);  s[k] = float(sw[k] * g);     multiplier[k] = sx * s[k] / sy
///                                 o[k] = float(beta + (b - mean) * g);   bias[k] = o[k] / sy
/// sy = 1 for float output. s and o are what a QDQ file says of a layer (src/onnx), in float32: read again, it gives
/// the same numbers. The one function that training, conversion and tests share. Throws Error(promise) on a non-finite
/// result.
struct Folded {
  std::vector<float> multiplier, bias;
};
Folded fold(const Node& node, const FloatParams& params, float x_scale, const std::vector<float>& weight_scale,
            float y_scale);

}  // namespace octet
