// SPDX-License-Identifier: Apache-2.0
// Conv, BatchNormalization, Gemm, MatMul, and the Add of a bias after them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/base/numbers.h"
#include "src/net/onnx/rules.h"

namespace octet::onnx_rules {
namespace {

std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> out(matrix.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
  return out;
}

/// Appends a linear layer with `weight` [K, C]. In the file the outputs are along `axis`.
void append_linear(NodeReader& node, std::vector<float> weight, int64_t outputs, int64_t inputs,
                   const std::vector<float>* bias, int64_t axis) {
  const OnnxValue& x = node.activation(0);
  if (x.rank != 2) node.refuse("its input is not [N, C], what octet's linear layers take");
  if (node.network().shape(x).c != inputs) {
    node.invalid(fmt::format("takes {} channels, its input has {}", inputs, node.network().shape(x).c));
  }
  if (x.channels_last) {  // octet's flatten gives C, H, W: [K, pixels, C] becomes [K, C, pixels]
    const int64_t channels = node.network().shape({.node = node.network().node(x).inputs[0]}).c;
    for (auto row = weight.begin(); row != weight.end(); row += inputs) {
      const std::vector<float> turned = transposed({row, row + inputs}, inputs / channels, channels);
      std::copy(turned.begin(), turned.end(), row);
    }
  }
  const OnnxValue y = node.network().append(
      {.op = Op::linear, .inputs = {x.node}, .out_channels = static_cast<int>(outputs), .bias = bias != nullptr},
      node.names(1), 2);
  const std::string name = node.network().node(y).name;
  if (QdqMarks* marks = node.network().marks) marks->weight_scales[name] = weight_scales(node, 1, axis, outputs);
  node.network().put(name, "weight", {outputs, inputs}, weight);
  if (bias != nullptr) node.network().put(name, "bias", {outputs}, *bias);
  node.result(y);
}

constexpr float kMomentum = 0.9f;  // of octet's BatchNorm, as in ONNX: the share of the previous statistics

/// Whether a BatchNormalization is in training mode: before opset 14 it then has more outputs, since then an attribute.
bool is_in_training_mode(NodeReader& node) {
  return node.opset() < 14 ? node.outputs() > 1 : node.integer("training_mode", 0) != 0;
}

}  // namespace

std::vector<float> per_channel(NodeReader& node, int input, int64_t channels) {
  const Constant& found = node.constant(input);
  int64_t rows = 1;
  for (const int64_t dim : found.shape) rows = saturating_product({rows, dim == channels ? 1 : dim});
  if (!found.real || rows != 1 || (found.reals.size() != 1 && found.reals.size() != static_cast<size_t>(channels))) {
    node.refuse(fmt::format("input '{}' is {}; expected {} float32 numbers, one a channel",
                            shown_name(node.name_of_input(input)), dims_text(found.shape), channels));
  }
  return found.reals.size() == 1 ? std::vector<float>(static_cast<size_t>(channels), found.reals[0]) : found.reals;
}

Constant filters(NodeReader& node, const OnnxValue& x) {
  const bool row = x.rank == 3;
  Constant weight = node.weights(1, row ? 3 : 4);
  if (row) weight.shape.insert(weight.shape.begin() + 2, 1);
  return weight;
}

void conv(NodeReader& node) {
  const OnnxValue x = node.window_input(0);
  const Constant weight = filters(node, x);
  const int64_t outputs = weight.shape[0];
  const int64_t groups = node.integer("group", 1);
  const int channels = node.network().shape(x).c;
  if (groups < 1 || groups > channels || weight.shape[1] * groups != channels) {
    node.invalid(fmt::format("weights {} in {} groups do not fit an input of {} channels", dims_text(weight.shape),
                             groups, channels));
  }
  const Window window = read_window(node, x, {weight.shape[2], weight.shape[3]});
  const bool bias = node.has_input(2);
  const std::vector<float> shifts = bias ? per_channel(node, 2, outputs) : std::vector<float>{};
  const OnnxValue y = node.network().append({.op = Op::conv2d,
                                             .inputs = {x.node},
                                             .window = window,
                                             .out_channels = static_cast<int>(outputs),
                                             .groups = static_cast<int>(groups),
                                             .bias = bias},
                                            node.names(1), x.rank);
  const std::string name = node.network().node(y).name;
  if (QdqMarks* marks = node.network().marks) marks->weight_scales[name] = weight_scales(node, 1, 0, outputs);
  node.network().put(name, "weight", weight.shape, weight.reals);
  if (bias) node.network().put(name, "bias", {outputs}, shifts);
  node.result(y);
}

OnnxValue scaled_channels(Network& network, const OnnxValue& x, const std::vector<float>& factors,
                          const std::vector<float>& shifts, const std::vector<std::string>& names) {
  const int channels = network.shape(x).c;
  OnnxValue y = network.append(
      {.op = Op::conv2d, .inputs = {x.node}, .out_channels = channels, .groups = channels, .bias = !shifts.empty()},
      names, x.rank);
  y.channels_last = x.channels_last;
  const std::string name = network.node(y).name;
  network.put(name, "weight", {channels, 1, 1, 1}, factors);
  if (!shifts.empty()) network.put(name, "bias", {channels}, shifts);
  return y;
}

/// A BatchNormalization after a layer that no other node reads stays one, so that training continues with its
/// statistics. Elsewhere octet has no BatchNorm: in training mode it gets a depthwise 1x1 convolution of ones before
/// it, else it becomes a depthwise 1x1 convolution.
void batch_normalization(NodeReader& node) {
  const OnnxValue x = node.activation(0);
  Network& network = node.network();
  if (network.marks != nullptr)
    node.fail(
        "in a quantized network; fold it into its convolution before quantizing: "
        "onnxruntime.quantization.quant_pre_process(FILE, NEW)");
  const int channels = network.shape(x).c;
  const std::vector<float> gamma = per_channel(node, 1, channels), beta = per_channel(node, 2, channels);
  const std::vector<float> mean = per_channel(node, 3, channels), variance = per_channel(node, 4, channels);
  const double epsilon = node.real("epsilon", 1e-5f);
  const float momentum = node.real("momentum", 0.9f);
  const bool trains = is_in_training_mode(node);
  if (node.integer("spatial", 1) == 0)
    node.refuse("spatial 0, statistics of each pixel; expected one for each channel");
  for (size_t c = 0; c < variance.size(); ++c)
    if (!(variance[c] + epsilon > 0))
      node.fail(
          fmt::format("variance {} at [{}] of tensor '{}' and epsilon {}: their sum is not positive; train or export "
                      "the network again",
                      variance[c], c, shown_name(node.name_of_input(4)), epsilon));
  const bool own = x.direct && node.readers(0) == 1 && has_weight(network.node(x).op);
  const std::vector<std::string> names = node.names(1);
  OnnxValue y;
  if (own || trains) {
    const std::vector<float> ones(static_cast<size_t>(channels), 1.0f);
    if (!own) y = scaled_channels(network, x, ones, {}, {node.name_of_output(0) + "/layer"});
    // The attribute is a float32, octet's epsilon a double.
    const bool usual = std::abs(epsilon - kBatchNormEpsilon) < 1e-10;
    y = network.append(
        {.op = Op::batch_norm, .inputs = {own ? x.node : y.node}, .epsilon = usual ? kBatchNormEpsilon : epsilon},
        names, x.rank);
    const std::string name = network.node(y).name;
    network.put(name, "weight", {channels}, gamma);
    network.put(name, "bias", {channels}, beta);
    network.put(name, "running_mean", {channels}, mean);
    network.put(name, "running_var", {channels}, variance);
    if (trains)
      network.note(
          "BatchNormalization in training mode: training takes each batch's statistics, evaluation the file's running "
          "mean and variance");
    if (std::abs(momentum - kMomentum) > 1e-6)
      network.note(fmt::format("BatchNormalization with momentum {}: octet trains with {}", momentum, kMomentum));
  } else {
    std::vector<float> gain(gamma), shift(beta);
    for (size_t c = 0; c < gain.size(); ++c) {
      const double factor = gamma[c] / std::sqrt(variance[c] + epsilon);
      gain[c] = static_cast<float>(factor);
      shift[c] = static_cast<float>(beta[c] - factor * mean[c]);
    }
    y = scaled_channels(network, x, gain, shift, names);
    network.note(network.node(y).name +
                 ": a BatchNormalization without a convolution of its own becomes a depthwise 1x1 convolution");
  }
  node.result(y);
}

void gemm(NodeReader& node) {
  const Constant& matrix = node.weights(1, 2);
  if (node.integer("transA", 0) != 0) node.refuse("transA; expected the images as rows");
  const bool by_rows = node.integer("transB", 0) != 0;  // [K, C], as octet has it
  const int64_t outputs = matrix.shape[by_rows ? 0 : 1], inputs = matrix.shape[by_rows ? 1 : 0];
  const float alpha = node.real("alpha", 1), beta = node.real("beta", 1);
  if (!std::isfinite(alpha) || !std::isfinite(beta)) node.invalid("alpha or beta is not a number");
  if (alpha != 1 && node.network().marks != nullptr) node.refuse("alpha of quantized weights; expected 1");
  std::vector<float> weight = by_rows ? matrix.reals : transposed(matrix.reals, inputs, outputs);
  for (float& w : weight) w *= alpha;
  std::vector<float> bias;
  if (node.has_input(2)) {
    bias = per_channel(node, 2, outputs);
    const std::vector<int64_t>& shape = node.constant(2).shape;
    if (node.constant(2).reals.size() != 1 && shape.back() != outputs)
      node.refuse(fmt::format("adds {}, which is not one number an output", dims_text(shape)));
    for (float& b : bias) b *= beta;
  }
  append_linear(node, weight, outputs, inputs, node.has_input(2) ? &bias : nullptr, by_rows ? 0 : 1);
}

void mat_mul(NodeReader& node) {
  if (!node.input(0).constant && !node.input(1).constant) return matmul_of_heads(node);
  const Constant& matrix = node.weights(1, 2);
  const int64_t inputs = matrix.shape[0], outputs = matrix.shape[1];
  append_linear(node, transposed(matrix.reals, inputs, outputs), outputs, inputs, nullptr, 1);
}

bool is_bias(NodeReader& node, int bias) {
  const OnnxValue& x = node.scaled_input(1 - bias);
  const Node& layer = node.network().node(x);
  return x.direct && !layer.bias && has_weight(layer.op) && node.readers(1 - bias) == 1;
}

void add_bias(NodeReader& node, int bias) {
  const OnnxValue x = node.activation(1 - bias);
  Network& network = node.network();
  Node& layer = network.node(x);
  const std::vector<int64_t>& shape = node.constant(bias).shape;  // the channels are second in [N, C] and [N, C, H, W]
  const size_t behind = axes_behind_channels(x);
  const int channels = network.shape(x).c;
  const bool along_channels =
      node.constant(bias).reals.size() == 1 || (shape.size() > behind && shape[shape.size() - 1 - behind] == channels);
  if (!along_channels) node.refuse(fmt::format("adds {}, which is not one number a channel", dims_text(shape)));
  network.put(layer.name, "bias", {channels}, per_channel(node, bias, channels));
  layer.bias = true;
  node.result(x);
}

}  // namespace octet::onnx_rules
