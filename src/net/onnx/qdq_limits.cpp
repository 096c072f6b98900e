// SPDX-License-Identifier: Apache-2.0
#include "src/net/onnx/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "src/base/error.h"
#include "src/net/shapes.h"
#include "src/quant/node_constants.h"

namespace octet {
namespace {

constexpr const char* kNotOctets = "; training gives no such constants: write the checkpoint again by octet export RUN";

[[noreturn]] void fail(const Int8Node& node, const std::string& what) {
  throw usage_error(fmt::format("export: node '{}' ({}): {}", node.name, int8_op_name(node.op), what));
}

void check_profile(const Int8Node& node, OnnxProfile profile) {
  if (profile != OnnxProfile::tensorrt || node.float_output) return;
  if (!node.out.is_signed() || node.out.zero_point != 0)
    fail(node,
         "TensorRT takes symmetric int8 activations; train with quant.activation symmetric_s8, or choose "
         "another --profile");
}

/// In QDQ form the factor between a node's input and output follows from their scales.
void check_multipliers(const Int8Graph& graph, const Int8Node& node) {
  if (node.op == Int8Op::input) return;
  const auto input_of = [&](size_t i) -> const Int8Node& { return graph.nodes[static_cast<size_t>(node.inputs[i])]; };
  const bool weighted = node.op == Int8Op::conv2d || node.op == Int8Op::linear;
  const double y_scale = node.float_output ? 1.0 : node.out.scale;
  const double divisor = sum_divisor(shape_attributes(node), input_of(0).shape);
  const auto require = [&](double multiplier, size_t input) {
    const double ratio = input_of(input).out.scale / (y_scale * divisor);
    if (std::abs(multiplier - ratio) > 1e-5 * ratio)
      fail(node,
           fmt::format("multiplier {} is not the ratio of its edges' scales, {}{}", multiplier, ratio, kNotOctets));
  };
  if (node.op == Int8Op::matmul) {  // written with a factor of the product
    if (!(node.multiplier[0] > 0))
      fail(node, fmt::format("multiplier {} is not positive{}", node.multiplier[0], kNotOctets));
    return;
  }
  if (node.op == Int8Op::softmax) return require(node.multiplier[0] * input_of(0).out.scale, 0);
  if (node.op == Int8Op::lookup) return;                                // the scales of its channels, if it has them
  if (node.op == Int8Op::prelu) return require(node.multiplier[0], 0);  // the others are slopes
  if (node.op == Int8Op::mul) return require(node.multiplier[0] / input_of(1).out.scale, 0);
  for (size_t i = 0; i < node.multiplier.size() && !weighted; ++i) require(node.multiplier[i], i);
  if (weighted && node.inputs.size() == 2) require(node.residual_multiplier, 1);
}

/// Other runtimes compute the function in reals, so the table must be its codes, up to rounding.
void check_table(const Int8Graph& graph, const Int8Node& node) {
  if (node.op != Int8Op::lookup) return;
  const std::optional<Function> function = read_function(node.function);
  if (!function)
    fail(node,
         fmt::format("its table was made from '{}', which has no form in ONNX here{}", node.function, kNotOctets));
  const QParams& in = graph.nodes[static_cast<size_t>(node.inputs[0])].out;
  for (size_t channel = 0; channel < node.table.size() / 256; ++channel) {
    const bool scaled = !node.multiplier.empty();
    const double input = scaled ? node.multiplier[channel] : 1;
    const double output = scaled ? node.multiplier[node.multiplier.size() / 2 + channel] : 1;
    for (int32_t code = in.quant_min; code <= in.quant_max; ++code) {
      const auto value = static_cast<float>(output * evaluate(*function, input * dequantize(code, in)));
      const int32_t expected = std::clamp(quantize(value, node.out), node.clamp_min, node.clamp_max);
      const uint8_t byte = node.table[256 * channel + static_cast<uint8_t>(code)];
      const int32_t found = node.out.is_signed() ? static_cast<int8_t>(byte) : byte;
      if (std::abs(found - expected) > 1)
        fail(node, fmt::format("gives {} for code {}; its function {} gives {}{}", found, code, node.function, expected,
                               kNotOctets));
    }
  }
}

/// The exponentials of a softmax must be those of its input's scale, up to rounding.
void check_exponentials(const Int8Graph& graph, const Int8Node& node) {
  if (node.op != Int8Op::softmax) return;
  const std::vector<int32_t> expected = softmax_table(graph.nodes[static_cast<size_t>(node.inputs[0])].out);
  for (size_t d = 0; d < expected.size(); ++d)
    if (std::abs(node.exponentials[d] - expected[d]) > 1)
      fail(node, fmt::format("exponential {} is {}; its input's scale gives {}{}", d, node.exponentials[d], expected[d],
                             kNotOctets));
}

}  // namespace

void check_expressible(const Int8Graph& graph, const Int8Node& node, OnnxProfile profile) {
  check_profile(node, profile);
  check_multipliers(graph, node);
  check_table(graph, node);
  check_exponentials(graph, node);
}

namespace {

constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr double kRoom = 1 << 30;
constexpr double kToldCodes = 0.1;

float raised_scale(double bias, double x_scale, double room) {
  return std::max(static_cast<float>(std::abs(bias) / (room * x_scale)), std::numeric_limits<float>::min());
}

/// Returns the largest distance of a code from the zero point.
double max_magnitude(const QParams& x) {
  return std::max(std::abs(x.quant_min - x.zero_point), std::abs(x.quant_max - x.zero_point));
}

}  // namespace

int32_t int32_bias(double bias, double scale) {
  const double code = std::nearbyint(bias / scale);
  return static_cast<int32_t>(std::clamp(code, static_cast<double>(std::numeric_limits<int32_t>::min()), kMaxInt32));
}

float scale_for_bias(double bias, double x_scale) { return raised_scale(bias, x_scale, kRoom); }

void Int32Biases::fit(std::span<int8_t> codes, float& scale, float bias, const QParams& x, double y_scale) {
  double sum = 0;  // the largest magnitude of a sum of products
  for (const int8_t code : codes) sum += std::abs(code) * max_magnitude(x);
  if (std::abs(bias / (static_cast<double>(scale) * x.scale)) + sum > kMaxInt32) {
    const double before = scale;
    scale = raised_scale(bias, x.scale, std::max(std::min(kRoom, kMaxInt32 - sum), kRoom / 2));
    double moved = 0;
    for (int8_t& code : codes) {
      const double weight = code * before;
      code = static_cast<int8_t>(std::nearbyint(weight / scale));
      moved += std::abs(code * static_cast<double>(scale) - weight);
    }
    moved_ = std::max(moved_, moved * max_magnitude(x) * x.scale / y_scale);
    if (raised_++ == 0) first_raised_ = channels_;
  }
  const double bias_scale = static_cast<double>(scale) * x.scale;
  const double off = std::abs(int32_bias(bias, bias_scale) * bias_scale - bias) / y_scale;
  if (off > off_) off_ = off, worst_ = channels_;
  ++channels_;
}

std::vector<std::string> Int32Biases::notes(const std::string& layer) const {
  std::vector<std::string> notes;
  if (raised_ > 0)
    notes.push_back(fmt::format(
        "{}: {} of {} channels (the first: {}) have weights so small beside their bias that it would saturate as an "
        "int32 bias, as int8 runtimes have it; their weight scales are raised, which moves an output by at most {:.2g} "
        "of a code",
        layer, raised_, channels_, first_raised_, moved_));
  if (off_ > kToldCodes)
    notes.push_back(
        fmt::format("{}: the bias of channel {} is {:.2g} of an output's code off where a runtime makes an "
                    "int32 bias of it",
                    layer, worst_, off_));
  return notes;
}

}  // namespace octet
