// SPDX-License-Identifier: Apache-2.0
#include "src/quant/equalize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "src/base/error.h"
#include "src/net/op_traits.h"

namespace octet {
namespace {

/// A layer of one or two pairs: its weights, and what they are to be multiplied by.
struct Layer {
  const Node& node;
  std::vector<float>& weight;
  size_t outputs, inputs, taps;   // weight: [outputs][inputs of a group][taps]
  std::vector<double> gain;       // gamma / sqrt(var + eps) of BatchNorm; 1 without
  std::vector<double> of_output;  // factor of each output channel
  std::vector<double> of_input;   // factor of each input channel, of all groups
  std::vector<double> magnitude;  // |gain|, or 1 where it is 0
  size_t channel(size_t output, size_t input) const { return output / (outputs / node.groups) * inputs + input; }
  double factor(size_t output, size_t input) const {
    return magnitude[output] * of_output[output] * of_input[channel(output, input)];
  }

  /// Calls f(output, input of the group, taps).
  template <class F>
  void for_kernels(const F& f) const {
    for (size_t k = 0; k < outputs; ++k)
      for (size_t c = 0; c < inputs; ++c) f(k, c, weight.data() + (k * inputs + c) * taps);
  }
};

using Layers = std::map<int, Layer>;

std::vector<double> gains(const Node& node, const FloatParams& params, size_t outputs) {
  std::vector<double> result(outputs, 1);
  if (node.batch_norm.empty()) return result;
  const std::vector<float>& gamma = find_parameter(params, node.batch_norm + ".weight", outputs);
  const std::vector<float>& variance = find_parameter(params, node.batch_norm + ".running_var", outputs);
  for (size_t k = 0; k < outputs; ++k) result[k] = gamma[k] / std::sqrt(double{variance[k]} + node.epsilon);
  return result;
}

/// `channels`: how many the layer reads, counted before a flatten.
Layer make_layer(const Node& node, size_t channels, FloatParams& params) {
  const size_t outputs = static_cast<size_t>(node.out_channels), inputs = channels / node.groups;
  const auto found = params.find(node.name + ".weight");
  if (found == params.end() || found->second.size() % (outputs * inputs) != 0)
    throw data_error("parameter '" + node.name + ".weight' is missing or has another shape");
  Layer layer{.node = node,
              .weight = found->second,
              .outputs = outputs,
              .inputs = inputs,
              .taps = found->second.size() / (outputs * inputs),
              .gain = gains(node, params, outputs),
              .of_output = std::vector<double>(outputs, 1),
              .of_input = std::vector<double>(channels, 1),
              .magnitude = {}};
  for (const double gain : layer.gain) layer.magnitude.push_back(gain == 0 ? 1 : std::fabs(gain));
  return layer;
}

/// Returns the channels that a layer reads, counted before a flatten.
size_t channels_read(const Graph& graph, int layer) {
  int n = graph.nodes[layer].inputs[0];
  while (graph.nodes[n].op == Op::flatten) n = graph.nodes[n].inputs[0];
  return static_cast<size_t>(graph.nodes[n].shape.c);
}

Layers layers_of(const Graph& graph, const std::vector<LayerPair>& pairs, FloatParams& params) {
  Layers layers;
  for (const LayerPair& pair : pairs)
    for (const int n : {pair.first, pair.second})
      if (layers.find(n) == layers.end())
        layers.emplace(n, make_layer(graph.nodes[n], channels_read(graph, n), params));
  return layers;
}

/// Returns the max magnitudes of the scaled weights, for each output channel or for each input channel.
std::vector<double> ranges(const Layer& layer, bool by_output) {
  std::vector<double> largest(by_output ? layer.outputs : layer.of_input.size(), 0);
  layer.for_kernels([&](size_t k, size_t c, const float* taps) {
    double kernel = 0;
    for (size_t t = 0; t < layer.taps; ++t) kernel = std::max(kernel, std::fabs(double{taps[t]}));
    double& range = largest[by_output ? k : layer.channel(k, c)];
    range = std::max(range, kernel * layer.factor(k, c));
  });
  return largest;
}

/// Scales the channels between two layers. Returns the largest |log s| of all channels.
double balance(Layer& first, Layer& second) {
  const std::vector<double> writes = ranges(first, true), reads = ranges(second, false);
  double moved = 0;
  for (size_t c = 0; c < writes.size(); ++c) {
    if (!(writes[c] > 0) || !(reads[c] > 0)) continue;
    const double s = std::sqrt(writes[c] / reads[c]);
    first.of_output[c] /= s;
    second.of_input[c] *= s;
    moved = std::max(moved, std::fabs(std::log(s)));
  }
  return moved;
}

/// Multiplies the parameters by the factors, rounded once. BatchNorm undoes the factor of an output channel: its
/// statistics are scaled like the values that they describe.
void apply(const Layer& layer, FloatParams& params) {
  layer.for_kernels([&](size_t k, size_t c, float* taps) {
    for (size_t t = 0; t < layer.taps; ++t) taps[t] = static_cast<float>(taps[t] * layer.factor(k, c));
  });
  const Node& node = layer.node;
  const auto scale = [&](const std::string& name, const auto& factor) {
    std::vector<float>& values = params.at(name);
    for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(values[k] * factor(k));
  };
  const auto row = [&](size_t k) { return layer.magnitude[k] * layer.of_output[k]; };
  if (node.bias) scale(node.name + ".bias", row);
  if (node.batch_norm.empty()) return;
  scale(node.batch_norm + ".running_mean", row);
  scale(node.batch_norm + ".running_var", [&](size_t k) { return row(k) * row(k); });
  scale(node.batch_norm + ".bias", [&](size_t k) { return layer.of_output[k]; });
  const std::vector<float>& variance = params.at(node.batch_norm + ".running_var");
  std::vector<float>& gamma = params.at(node.batch_norm + ".weight");
  for (size_t k = 0; k < gamma.size(); ++k) {
    const double gain = layer.gain[k] / layer.magnitude[k];
    gamma[k] = static_cast<float>(gain * std::sqrt(double{variance[k]} + node.epsilon));
  }
}

}  // namespace

std::vector<LayerPair> layer_pairs(const Graph& fused) {
  const std::vector<std::vector<int>> read_by = readers_of(fused);
  std::vector<LayerPair> pairs;
  for (int n = 0; n < static_cast<int>(fused.nodes.size()); ++n) {
    const Node& first = fused.nodes[n];
    if (!has_weight(first.op) || first.inputs.size() != 1) continue;  // a residual would have to be scaled, too
    LayerPair pair{.first = n};
    for (int at = n; read_by[at].size() == 1 && read_by[at].front() != kUser;) {
      const int reader = read_by[at].front();
      const Node& node = fused.nodes[reader];
      if (has_weight(node.op)) {
        pair.second = reader;
        if (node.inputs[0] == at) pairs.push_back(pair);  // else it is the reader's residual
        break;
      }
      if (!traits(node.op).passes_scale_on) break;
      pair.between.push_back(at = reader);
    }
  }
  return pairs;
}

Graph equalizable(Graph fused) {
  const std::vector<LayerPair> pairs = layer_pairs(fused);
  if (pairs.empty()) {
    throw usage_error("calibrate.equalize: in '" + fused.name +
                      "' no two layers can be equalized: it takes a conv2d or linear whose output goes through "
                      "BatchNorm, relu, relu6, pools and resize to another one, and nowhere else; set equalize: "
                      "false");
  }
  const auto relax = [](Node& node) {
    if (node.op == Op::relu6) node.op = Op::relu;
    if (node.activation == Activation::relu6) node.activation = Activation::relu;
  };
  for (const LayerPair& pair : pairs) {
    relax(fused.nodes[pair.first]);
    for (const int n : pair.between) relax(fused.nodes[n]);
  }
  return fused;
}

void equalize(const Graph& graph, FloatParams& params) {
  constexpr int kSweeps = 100;
  constexpr double kStill = 1e-4;
  const std::vector<LayerPair> pairs = layer_pairs(graph);
  Layers layers = layers_of(graph, pairs, params);
  double moved = 1;
  for (int sweep = 0; sweep < kSweeps && moved > kStill; ++sweep) {
    moved = 0;
    for (const LayerPair& pair : pairs) moved = std::max(moved, balance(layers.at(pair.first), layers.at(pair.second)));
  }
  for (const auto& [n, layer] : layers) apply(layer, params);
}

namespace {

bool is_padded(const Node& node) { return node.window.pad != Padding{}; }

/// Returns whether a constant taken from the first layer's output arrives unchanged at the second layer's input.
bool passes_constants_on(const Graph& graph, const LayerPair& pair) {
  const Node &first = graph.nodes[pair.first], &second = graph.nodes[pair.second];
  if (is_padded(second) || bias_name(first).empty() || bias_name(second).empty()) return false;
  bool relu = first.activation == Activation::relu;
  for (const int n : pair.between) {
    const Node& node = graph.nodes[n];
    if (node.op == Op::avg_pool && is_padded(node)) return false;
    relu = relu || node.op == Op::relu || node.activation == Activation::relu;
  }
  return relu;
}

}  // namespace

std::string bias_name(const Node& node) {
  if (!node.batch_norm.empty()) return node.batch_norm + ".bias";
  return node.bias ? node.name + ".bias" : "";
}

void require_biases(const Graph& fused) {
  const Node* without = nullptr;
  for (const Node& node : fused.nodes) {
    if (!has_weight(node.op)) continue;
    if (!bias_name(node).empty()) return;
    if (without == nullptr) without = &node;
  }
  if (without != nullptr)
    throw usage_error("calibrate.bias_correction: layer '" + without->name +
                      "' has neither a bias nor a BatchNorm to correct, and no other layer has; give it bias: true, or "
                      "set bias_correction: false");
}

void absorb_biases(const Graph& graph, const std::vector<ChannelMoments>& moments, FloatParams& params) {
  constexpr double kDeviations = 3;  // 0.13 % of normally distributed values lie below, and the relu changes them
  for (const LayerPair& pair : layer_pairs(graph)) {
    if (!passes_constants_on(graph, pair)) continue;
    const Node &first = graph.nodes[pair.first], &second = graph.nodes[pair.second];
    const ChannelMoments& of_first = moments[pair.first];
    const size_t channels = of_first.mean.size(), outputs = static_cast<size_t>(second.out_channels);
    std::vector<double> taken(channels);
    for (size_t c = 0; c < channels; ++c)
      taken[c] = std::max(0.0, of_first.mean[c] - kDeviations * of_first.deviation[c]);

    std::vector<float>& from = params.at(bias_name(first));
    for (size_t c = 0; c < channels; ++c) from[c] = static_cast<float>(from[c] - taken[c]);
    const std::vector<float>& weight = params.at(second.name + ".weight");
    const size_t inputs = channels / second.groups, taps = weight.size() / (outputs * inputs);
    // The constant belongs to the convolution's sum, before BatchNorm multiplies it: so BatchNorm's mean takes it.
    const bool normalized = !second.batch_norm.empty();
    std::vector<float>& to = params.at(normalized ? second.batch_norm + ".running_mean" : second.name + ".bias");
    for (size_t k = 0; k < outputs; ++k) {
      const size_t group = k / (outputs / second.groups);
      double sum = 0;
      for (size_t i = 0; i < inputs * taps; ++i)
        sum += weight[k * inputs * taps + i] * taken[group * inputs + i / taps];
      to[k] = static_cast<float>(normalized ? to[k] - sum : to[k] + sum);
    }
  }
}

}  // namespace octet
