// SPDX-License-Identifier: Apache-2.0
// The constants of int8 nodes, made in double from float parameters and scales. Training, conversion and tests share
// these functions; src/eval/derived_values.h derives the same constants a second time, with no code in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/net/graph.h"
#include "src/net/int8_graph.h"

namespace octet {

/// Float parameters by name, row-major as in PyTorch.
using FloatParams = std::map<std::string, std::vector<float>>;

/// Returns params[name]. Throws Error(data) if it is missing or does not have `size` values.
const std::vector<float>& find_parameter(const FloatParams& params, std::string_view name, size_t size);

/// Multiplier and bias of each output channel of a convolution or linear.
struct Folded {
  std::vector<float> multiplier, bias;
};

/// Folds BatchNorm and the scales of input, weights and output into multipliers and biases:
///   g = gamma / sqrt(var + eps);  s[k] = float(sw[k] * g);     multiplier[k] = sx * s[k] / sy
///                                 o[k] = float(beta + (b - mean) * g);   bias[k] = o[k] / sy
/// with sy = 1 for float output. s and o are rounded to float32 because a QDQ file (src/net/onnx) stores them: read
/// again, it gives the same numbers. Throws Error(promise) on a result that is not finite.
Folded fold(const Node& node, const FloatParams& params, float x_scale, const std::vector<float>& weight_scale,
            float y_scale);

/// The codes that a node may write.
struct CodeBounds {
  int32_t lo = 0, hi = 255;
};

/// The scales of one channel of a lookup, before its function and behind it: y = output * f(input * x).
/// src/quant/equalize.h chooses them.
struct FunctionScale {
  float input = 1, output = 1;
};

/// Returns the scales of a lookup, one for all channels (which is 1) or one for each. Throws Error(promise) naming the
/// node for one that is not positive and finite.
std::vector<FunctionScale> function_scales(const Node& node, const FloatParams& params);

/// Returns the tables of a lookup with these scales, [256] for each: indexed by the byte that stores the input's code,
/// the byte that stores clamp(quantize(float(y))) of x = dequantize(code). A table has an entry for every byte, also
/// for codes outside the input's range.
std::vector<uint8_t> lookup_tables(const Function& function, const std::vector<FunctionScale>& scales, const QParams& x,
                                   const QParams& y, const CodeBounds& bounds);

/// Returns the multipliers of an int8 node before the scale of its output divides them; none for one that copies codes.
/// scale: that of the output of each node of the graph. Layers, lookups and prelus have functions of their own.
std::vector<double> undivided_multipliers(const Graph& graph, const Node& node, Int8Op op,
                                          const std::function<double(int)>& scale);

/// Returns the multipliers of a prelu, [1 + slopes]: x_scale / y_scale, then x_scale * slope / y_scale. Throws
/// Error(promise) if one is not finite or too large.
std::vector<float> prelu_multipliers(const Node& node, const std::vector<float>& slopes, double x_scale,
                                     double y_scale);

/// Returns the exponentials of a softmax, [256]: rint(exp(-d * x.scale) * kExponentialOne), where d is how many codes
/// an input lies below the largest of its group.
std::vector<int32_t> softmax_table(const QParams& x);

}  // namespace octet
