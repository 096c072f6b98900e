// SPDX-License-Identifier: Apache-2.0
// The QDQ form: every activation goes through a QuantizeLinear and a DequantizeLinear with its own scale.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "src/base/error.h"
#include "src/net/onnx/writer.h"

namespace octet {
namespace {

/// Returns the float32 near `wanted` * factor from which a reader computes exactly `wanted`, or the nearest float32 if
/// there is none. Multipliers and biases are made so that there is one (src/quant/node_constants.h).
template <typename Read>
float float_for(float wanted, double factor, const Read& read) {
  const auto nearest = static_cast<float>(wanted * factor);
  float below = nearest, above = nearest;
  for (int step = 0; step < 4; ++step) {
    for (const float candidate : {below, above})
      if (read(candidate) == wanted) return candidate;
    below = std::nextafter(below, -std::numeric_limits<float>::infinity());
    above = std::nextafter(above, std::numeric_limits<float>::infinity());
  }
  return nearest;
}

EndNames end_names(const Int8Graph& graph) {
  if (!graph.own_names) return {};
  EndNames names{graph.nodes.front().name, {}};
  for (const int output : graph.outputs) names.outputs.push_back(graph.nodes[static_cast<size_t>(output)].name);
  return names;
}

class QdqWriter {
 public:
  QdqWriter(const Int8Graph& graph, const OnnxOptions& options)
      : graph_(graph),
        options_(options),
        writer_(graph.name, graph.input_shape(), options.opset, end_names(graph)),
        rows_(find_rows(graph)) {}

  std::string run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      check_expressible(graph_, graph_.nodes[n], options_.profile);
      follow_flatten(static_cast<int>(n));
      codes_.emplace_back();
      edges_.push_back(emit(graph_.nodes[n], rows_[n]));
    }
    writer_.outputs(graph_, edges_, rows_);
    return writer_.finish(graph_.preprocessing, graph_.class_names);
  }

  const std::vector<std::string>& codes() const { return codes_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  [[noreturn]] void fail(const Int8Node& node, const std::string& what) const {
    throw usage_error(fmt::format("export: node '{}' ({}): {}", node.name, int8_op_name(node.op), what));
  }

  const Int8Node& input_of(const Int8Node& node, size_t i = 0) const {
    return graph_.nodes[static_cast<size_t>(node.inputs[i])];
  }

  /// After a flatten codes are in H, W, C order, ONNX's values in C, H, W order. linear() reorders its columns
  /// accordingly; only elementwise operators may be in between.
  void follow_flatten(int n) {
    const Int8Node& node = graph_.nodes[static_cast<size_t>(n)];
    Shape& flat = flattened_.emplace_back();
    if (node.op == Int8Op::flatten) {
      flat = input_of(node).shape;
      return;
    }
    for (const int input : node.inputs) {
      const Shape& before = flattened_[static_cast<size_t>(input)];
      if (before.h * before.w <= 1 || node.op == Int8Op::linear) continue;
      const bool alone = node.op == Int8Op::requantize || node.op == Int8Op::add ||
                         (node.op == Int8Op::lookup && node.groups == 1) ||
                         (node.op == Int8Op::mul && input_of(node, 1).shape == node.shape);
      if (!alone)
        fail(node,
             "stands behind a flatten of several pixels, whose codes lie in another order in ONNX: put it before the "
             "flatten");
      flat = before;
    }
  }

  std::string emit(const Int8Node& node, bool row) {
    if (node.op == Int8Op::input) return quantized(node, writer_.input());
    const std::string value = clamped(node, computed(node, row));
    return node.float_output ? value : quantized(node, value);
  }

  /// Returns the node's value in reals, before it is quantized.
  std::string computed(const Int8Node& node, bool row) {
    const std::vector<std::string> inputs = writer_.inputs(node.name, node.inputs, row, edges_, rows_);
    const std::string& x = inputs[0];
    switch (node.op) {
      case Int8Op::conv2d:
      case Int8Op::linear:
        return with_residual(node, inputs, node.op == Int8Op::conv2d ? convolution(node, x) : linear(node, x));
      case Int8Op::requantize:  // an output needs a node of its own
        return node.float_output ? writer_.node("Identity", node.name, {x}) : x;
      default:
        return write_operator(writer_, shared(node, row), inputs);
    }
  }

  SharedNode shared(const Int8Node& node, bool row) const {
    SharedNode shared{.name = node.name, .attributes = shape_attributes(node), .shape = node.shape, .row = row};
    for (size_t i = 0; i < node.inputs.size(); ++i) shared.inputs.push_back(input_of(node, i).shape);
    if (node.op == Int8Op::matmul) shared.scale = scale_of_product(node);
    if (node.op == Int8Op::prelu) shared.slopes = slopes(node);
    if (node.op == Int8Op::lookup) {
      shared.function = read_function(node.function);
      const auto half = node.multiplier.begin() + static_cast<std::ptrdiff_t>(node.multiplier.size() / 2);
      shared.input_scales.assign(node.multiplier.begin(), half);
      shared.output_scales.assign(half, node.multiplier.end());
    }
    return shared;
  }

  std::string with_residual(const Int8Node& node, const std::vector<std::string>& inputs, const std::string& y) {
    return inputs.size() == 1 ? y : writer_.node("Add", node.name + "/Add", {y, inputs[1]});
  }

  /// Returns the factor of a matmul in reals: multiplier = a scale * b scale * factor / y scale.
  float scale_of_product(const Int8Node& node) const {
    const double product = static_cast<double>(input_of(node, 0).out.scale) * input_of(node, 1).out.scale;
    const double y_scale = node.float_output ? 1.0 : node.out.scale;
    return float_for(node.multiplier[0], y_scale / product,
                     [&](float scale) { return static_cast<float>(product * scale / y_scale); });
  }

  /// Returns the slopes of a prelu in reals: multiplier = x scale * slope / y scale.
  std::vector<float> slopes(const Int8Node& node) const {
    const double x_scale = input_of(node).out.scale, y_scale = node.float_output ? 1.0 : node.out.scale;
    std::vector<float> slopes;
    for (size_t i = 1; i < node.multiplier.size(); ++i)
      slopes.push_back(float_for(node.multiplier[i], y_scale / x_scale,
                                 [&](float slope) { return static_cast<float>(x_scale * slope / y_scale); }));
    return slopes;
  }

  std::string convolution(const Int8Node& node, const std::string& x) {
    const Shape& in = input_of(node).shape;
    const int channels = in.c / node.groups, r = node.window.kernel_h, s = node.window.kernel_w;
    std::vector<int8_t> codes(node.weight.size());  // [K, R, S, C/groups] -> [K, C/groups, R, S]
    for (int k = 0; k < node.shape.c; ++k)
      for (int pixel = 0; pixel < r * s; ++pixel)
        for (int c = 0; c < channels; ++c)
          codes[static_cast<size_t>((k * channels + c) * r * s + pixel)] =
              node.weight[static_cast<size_t>((k * r * s + pixel) * channels + c)];
    std::vector<std::string> inputs = {x};
    append_parameters(node, std::move(codes), {node.shape.c, channels, r, s}, inputs);
    const std::string y = writer_.node("Conv", node.name, inputs);
    writer_.window(node.window, true);
    writer_.attribute("group", node.groups);
    return y;
  }

  std::string linear(const Int8Node& node, const std::string& x) {
    const Shape& flattened = flattened_[static_cast<size_t>(node.inputs[0])];
    const int columns = static_cast<int>(input_of(node).shape.elements());
    const int pixels = std::max(1, flattened.h * flattened.w), channels = columns / pixels;
    std::vector<int8_t> codes(node.weight.size());  // columns in H, W, C order -> C, H, W
    for (int k = 0; k < node.shape.c; ++k)
      for (int pixel = 0; pixel < pixels; ++pixel)
        for (int c = 0; c < channels; ++c)
          codes[static_cast<size_t>(k * columns + c * pixels + pixel)] =
              node.weight[static_cast<size_t>(k * columns + pixel * channels + c)];
    std::vector<std::string> inputs = {
        input_of(node).op == Int8Op::flatten ? x : writer_.flatten(node.name + "/Flatten", x)};
    append_parameters(node, std::move(codes), {node.shape.c, columns}, inputs);
    const std::string y = writer_.node("Gemm", node.name, inputs);
    writer_.attribute("transB", 1);
    return y;
  }

  /// Appends weight and bias to `inputs`. multiplier[k] = input scale * weight scale / output scale. If it is negative
  /// (because of BatchNorm's factor), the codes change sign; if it is 0, they become 0.
  void append_parameters(const Int8Node& node, std::vector<int8_t> codes, const std::vector<int64_t>& shape,
                         std::vector<std::string>& inputs) {
    const QParams& x = input_of(node).out;
    const double x_scale = x.scale, y_scale = node.float_output ? 1.0 : node.out.scale;
    const size_t outputs = node.multiplier.size(), row = codes.size() / outputs;
    std::vector<float> scale(outputs), bias(outputs);
    Int32Biases biases;
    for (size_t k = 0; k < outputs; ++k) {
      scale[k] = float_for(std::abs(node.multiplier[k]), y_scale / x_scale,
                           [&](float s) { return static_cast<float>(x_scale * s / y_scale); });
      bias[k] = float_for(node.bias[k], y_scale, [&](float b) { return static_cast<float>(b / y_scale); });
      const bool none = !(scale[k] >= std::numeric_limits<float>::min());
      if (none) scale[k] = bias[k] == 0 ? 1 : scale_for_bias(bias[k], x_scale);
      const std::span<int8_t> channel(codes.data() + k * row, row);
      for (int8_t& code : channel) code = none ? int8_t{0} : node.multiplier[k] < 0 ? static_cast<int8_t>(-code) : code;
      biases.fit(channel, scale[k], bias[k], x, y_scale);
    }
    for (const std::string& note : biases.notes(node.name)) notes_.push_back(note);
    const std::string& name = node.name;
    const auto channels = static_cast<int64_t>(outputs);
    inputs.push_back(
        writer_.node("DequantizeLinear", name + ".weight",
                     {writer_.codes(name + ".weight_codes", shape, codes),
                      writer_.floats(name + ".weight_scale", {channels}, scale.data()),
                      writer_.codes(name + ".weight_zero_point", {channels}, std::vector<int8_t>(outputs, 0))}));
    writer_.attribute("axis", 0);
    inputs.push_back(append_bias(node, bias, scale, x_scale));
  }

  std::string append_bias(const Int8Node& node, const std::vector<float>& bias, std::vector<float> scale,
                          double x_scale) {
    const std::string& name = node.name;
    const auto channels = static_cast<int64_t>(bias.size());
    if (options_.profile != OnnxProfile::int32_bias) return writer_.floats(name + ".bias", {channels}, bias.data());
    std::vector<int32_t> codes;
    for (size_t k = 0; k < bias.size(); ++k) {
      scale[k] = static_cast<float>(scale[k] * x_scale);
      codes.push_back(int32_bias(bias[k], scale[k]));
    }
    const std::string y = writer_.node(
        "DequantizeLinear", name + ".bias",
        {writer_.int32s(name + ".bias_codes", codes), writer_.floats(name + ".bias_scale", {channels}, scale.data()),
         writer_.int32s(name + ".bias_zero_point", std::vector<int32_t>(bias.size(), 0))});
    writer_.attribute("axis", 0);
    return y;
  }

  /// Applies the clamp of the node, unless QuantizeLinear does it already by saturating at the bounds of the type.
  std::string clamped(const Int8Node& node, const std::string& value) {
    if (node.float_output) return value;
    const int32_t lowest = node.out.is_signed() ? -128 : 0, highest = node.out.is_signed() ? 127 : 255;
    if (node.clamp_min == lowest && node.clamp_max == highest) return value;
    if (node.clamp_min == node.out.zero_point && node.clamp_max == highest)
      return writer_.node("Relu", node.name + "/Relu", {value});
    return writer_.node("Clip", node.name + "/Clip",
                        {value, writer_.scalar(node.name + "/min", dequantize(node.clamp_min, node.out)),
                         writer_.scalar(node.name + "/max", dequantize(node.clamp_max, node.out))});
  }

  std::string quantized(const Int8Node& node, const std::string& value) {
    const std::string scale = writer_.scalar(node.name + ".scale", node.out.scale);
    const std::string zero = writer_.zero_point(node.name + ".zero_point", node.out.zero_point, node.out.is_signed());
    const std::string bounded = node.op == Int8Op::input ? input_bounds(node, value) : value;
    codes_.back() = writer_.node("QuantizeLinear", node.name + "/QuantizeLinear", {bounded, scale, zero});
    return writer_.node("DequantizeLinear", node.name + "/DequantizeLinear", {codes_.back(), scale, zero});
  }

  /// The input has no clamp, but its codes are within the range of `out`.
  std::string input_bounds(const Int8Node& node, const std::string& value) {
    Int8Node whole = node;
    whole.clamp_min = node.out.quant_min;
    whole.clamp_max = node.out.quant_max;
    return clamped(whole, value);
  }

  const Int8Graph& graph_;
  const OnnxOptions options_;
  OnnxWriter writer_;
  const std::vector<bool> rows_;
  std::vector<std::string> edges_;  ///< the value of each node, after its DequantizeLinear
  std::vector<std::string> codes_;  ///< the codes of each node, before its DequantizeLinear
  std::vector<Shape> flattened_;    ///< for each node the input's shape of a flatten before it; h * w <= 1: none
  std::vector<std::string> notes_;  ///< for people: what int8 runtimes do with the biases
};

}  // namespace

std::string write_qdq(const Int8Graph& graph, const OnnxOptions& options, std::vector<std::string>* codes,
                      std::vector<std::string>* notes) {
  QdqWriter writer(graph, options);
  std::string bytes = writer.run();
  if (options.profile == OnnxProfile::tensorrt) {
    const auto faults = tensorrt_faults(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), graph.name);
    if (!faults.empty()) throw promise_error(fmt::format("export: not for TensorRT: {}", fmt::join(faults, "; ")));
  }
  if (codes != nullptr) *codes = writer.codes();
  if (notes != nullptr) *notes = writer.notes();
  return bytes;
}

}  // namespace octet
