// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "src/base/error.h"
#include "src/net/op_traits.h"
#include "src/net/shapes.h"
#include "src/quant/node_constants.h"

namespace octet {

const std::vector<float>& find_parameter(const FloatParams& params, std::string_view name, size_t size) {
  const auto found = params.find(std::string(name));
  if (found == params.end()) throw data_error("parameter '" + std::string(name) + "' is missing");
  if (found->second.size() != size) {
    throw data_error("parameter '" + found->first + "' has " + std::to_string(found->second.size()) +
                     " values, expected " + std::to_string(size));
  }
  return found->second;
}

namespace {

void check_scale(float scale, const Node& node, const char* what) {
  if (!(scale > 0) || !std::isfinite(scale)) {
    throw promise_error("'" + node.name + "': " + what + " scale " + std::to_string(scale) +
                        " is not a positive finite number");
  }
}

float checked(double value, const Node& node, size_t channel, const char* what) {
  const float rounded = static_cast<float>(value);
  if (!(std::fabs(rounded) <= kMaxMultiplier)) {  // also NaN
    throw promise_error("'" + node.name + "': " + what + " of channel " + std::to_string(channel) + " is " +
                        std::to_string(value) + "; its parameters, BatchNorm or scales are broken");
  }
  return rounded;
}

}  // namespace

Folded fold(const Node& node, const FloatParams& params, float x_scale, const std::vector<float>& weight_scale,
            float y_scale) {
  const size_t channels = static_cast<size_t>(node.out_channels);
  check_scale(x_scale, node, "input");
  check_scale(y_scale, node, "output");
  if (weight_scale.size() != channels) {
    throw promise_error("'" + node.name + "': " + std::to_string(weight_scale.size()) + " weight scales for " +
                        std::to_string(channels) + " channels");
  }
  const std::vector<float>* b = node.bias ? &find_parameter(params, node.name + ".bias", channels) : nullptr;
  const std::vector<float>*gamma = nullptr, *beta = nullptr, *mean = nullptr, *var = nullptr;
  if (!node.batch_norm.empty()) {
    gamma = &find_parameter(params, node.batch_norm + ".weight", channels);
    beta = &find_parameter(params, node.batch_norm + ".bias", channels);
    mean = &find_parameter(params, node.batch_norm + ".running_mean", channels);
    var = &find_parameter(params, node.batch_norm + ".running_var", channels);
  }
  Folded folded;
  folded.multiplier.resize(channels);
  folded.bias.resize(channels);
  for (size_t k = 0; k < channels; ++k) {
    check_scale(weight_scale[k], node, "weight");
    double gain = 1, offset = b ? (*b)[k] : 0.0;
    if (gamma) {
      gain = (*gamma)[k] / std::sqrt(static_cast<double>((*var)[k]) + node.epsilon);
      offset = (*beta)[k] + (offset - (*mean)[k]) * gain;
    }
    const auto scale = static_cast<float>(weight_scale[k] * gain);
    folded.multiplier[k] = checked(static_cast<double>(x_scale) * scale / y_scale, node, k, "multiplier");
    folded.bias[k] = checked(static_cast<double>(static_cast<float>(offset)) / y_scale, node, k, "bias");
  }
  return folded;
}

std::vector<FunctionScale> function_scales(const Node& node, const FloatParams& params) {
  std::vector<FunctionScale> scales(static_cast<size_t>(node.groups));
  if (scales.size() == 1) return scales;
  const std::vector<float>& input = find_parameter(params, node.name + ".input_scale", scales.size());
  const std::vector<float>& output = find_parameter(params, node.name + ".output_scale", scales.size());
  for (size_t c = 0; c < scales.size(); ++c) {
    scales[c] = {input[c], output[c]};
    for (const float scale : {input[c], output[c]})
      if (!(scale > 0) || !std::isfinite(scale))
        throw promise_error("'" + node.name + "': the scale " + std::to_string(scale) + " of channel " +
                            std::to_string(c) + " is not a positive finite number");
  }
  return scales;
}

std::vector<uint8_t> lookup_tables(const Function& function, const std::vector<FunctionScale>& scales, const QParams& x,
                                   const QParams& y, const CodeBounds& bounds) {
  std::vector<uint8_t> tables;
  for (const FunctionScale& scale : scales) {
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t code = x.is_signed() ? static_cast<int8_t>(byte) : byte;
      const double real = scale.output * evaluate(function, scale.input * static_cast<double>(dequantize(code, x)));
      tables.push_back(static_cast<uint8_t>(std::clamp(quantize(static_cast<float>(real), y), bounds.lo, bounds.hi)));
    }
  }
  return tables;
}

std::vector<double> undivided_multipliers(const Graph& graph, const Node& node, Int8Op op,
                                          const std::function<double(int)>& scale) {
  if (op == Int8Op::mul || op == Int8Op::matmul) return {scale(node.inputs[0]) * scale(node.inputs[1]) * node.scale};
  if (op == Int8Op::softmax) return {1};
  std::vector<double> multipliers;
  if (traits(op).multipliers == Multipliers::none) return multipliers;
  const double divisor = sum_divisor(shape_attributes(node), graph.nodes[node.inputs[0]].shape);
  for (const int input : node.inputs) multipliers.push_back(scale(input) / divisor);
  return multipliers;
}

std::vector<float> prelu_multipliers(const Node& node, const std::vector<float>& slopes, double x_scale,
                                     double y_scale) {
  std::vector<float> multipliers = {checked(x_scale / y_scale, node, 0, "multiplier")};
  for (size_t group = 0; group < slopes.size(); ++group)
    multipliers.push_back(checked(x_scale * slopes[group] / y_scale, node, group, "slope's multiplier"));
  return multipliers;
}

std::vector<int32_t> softmax_table(const QParams& x) {
  std::vector<int32_t> table(256);
  for (int d = 0; d < 256; ++d)
    table[static_cast<size_t>(d)] =
        static_cast<int32_t>(std::rint(std::exp(-d * static_cast<double>(x.scale)) * kExponentialOne));
  return table;
}

}  // namespace octet
