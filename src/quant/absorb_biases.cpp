#include <algorithm>

#include "src/common/error.h"
#include "src/quant/equalize.h"

namespace octet {
namespace {

bool is_padded(const Node& node) { return node.window.pad != Padding{}; }

/// Whether a constant that is taken from the first layer comes out of what is between as it went in.
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
  for (const Node& node : fused.nodes) {
    if (!has_weight(node.op) || !bias_name(node).empty()) continue;
    throw usage_error("calibrate.bias_correction: layer '" + node.name +
                      "' has neither a bias nor a BatchNorm to correct; give it bias: true, or set bias_correction: "
                      "false");
  }
}

void absorb_biases(const Graph& graph, const std::vector<ChannelMoments>& moments, FloatParams& params) {
  constexpr double kDeviations = 3;  // of a normal distribution 0.13 % lie below, and are changed by the relu
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
    // Of the product: BatchNorm multiplies it, so it is its mean that takes the constant.
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
