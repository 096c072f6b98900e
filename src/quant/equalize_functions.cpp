// SPDX-License-Identifier: Apache-2.0
#include "src/quant/equalize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/net/op_traits.h"

namespace octet {
namespace {

constexpr double kMostRatio = 256;  // a channel that nearly never differs from 0 may do so in other images

double width(const Interval& channel) { return channel.hi - channel.lo; }

/// Divides the parameter by a number for each of its first dimension's channels.
void scale_rows(FloatParams& params, const std::string& name, const std::vector<float>& divisors) {
  std::vector<float>& values = params.at(name);
  const size_t row = values.size() / divisors.size();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(values[i] / double{divisors[i / row]});
}

/// Divides what a layer writes into each channel.
void divide_outputs(const Node& layer, const std::vector<float>& divisors, FloatParams& params) {
  if (layer.batch_norm.empty()) {
    scale_rows(params, layer.name + ".weight", divisors);
    if (layer.bias) scale_rows(params, layer.name + ".bias", divisors);
  } else {
    scale_rows(params, layer.batch_norm + ".weight", divisors);
    scale_rows(params, layer.batch_norm + ".bias", divisors);
  }
}

/// Divides the weights by which a layer reads each channel.
void divide_inputs(const Node& layer, const std::vector<float>& divisors, FloatParams& params) {
  std::vector<float>& weight = params.at(layer.name + ".weight");
  const size_t outputs = static_cast<size_t>(layer.out_channels), groups = static_cast<size_t>(layer.groups);
  const size_t inputs = divisors.size() / groups, taps = weight.size() / (outputs * inputs);
  for (size_t i = 0; i < weight.size(); ++i) {
    const size_t group = i / (inputs * taps) / (outputs / groups), channel = group * inputs + i / taps % inputs;
    weight[i] = static_cast<float>(weight[i] / double{divisors[channel]});
  }
}

/// Returns by what a channel must be divided to fit [-down, 1].
double factor(const Interval& channel, double down) {
  if (channel.lo >= 0) return channel.hi;
  return down > 0 ? std::max(channel.hi, -channel.lo / down) : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<FunctionPair> function_pairs(const Graph& fused) {
  const std::vector<Node>& nodes = fused.nodes;
  const std::vector<std::vector<int>> readers = readers_of(fused);
  std::vector<FunctionPair> pairs;
  for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
    const Node& lookup = nodes[n];
    if (lookup.op != Op::lookup || lookup.groups > 1 || lookup.shape.c == 1) continue;
    const int layer = lookup.inputs[0];
    const Node& first = nodes[layer];
    if (!has_weight(first.op) || first.inputs.size() != 1 || first.activation != Activation::none) continue;
    if (readers[layer].size() != 1) continue;
    FunctionPair pair{.layer = layer, .lookup = n, .readers = {}};
    const bool only_layers = std::all_of(readers[n].begin(), readers[n].end(), [&](int reader) {
      if (reader == kUser) return false;
      const std::vector<int>& inputs = nodes[reader].inputs;
      return has_weight(nodes[reader].op) && std::count(inputs.begin(), inputs.end(), n) == 1 && inputs[0] == n;
    });
    if (only_layers && lookup.activation != Activation::relu6) pair.readers = readers[n];
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

double spread(const std::vector<Interval>& channels) {
  std::vector<double> widths;
  for (const Interval& channel : channels) widths.push_back(width(channel));
  std::sort(widths.begin(), widths.end());
  return widths.back() / std::max(widths[widths.size() / 2], std::numeric_limits<double>::min());
}

std::vector<double> fitting_factors(std::vector<Interval> channels) {
  for (Interval& channel : channels) channel = {std::min(channel.lo, 0.0), std::max(channel.hi, 0.0)};
  double best_cost = std::numeric_limits<double>::infinity(), best = 1;
  for (const Interval& like : channels) {  // the best range has the proportions of one of the channels
    const double down = like.hi > 0 ? -like.lo / like.hi : 1;
    double cost = 0;
    for (const Interval& channel : channels)
      if (width(channel) > 0) cost += std::log(factor(channel, down) * (1 + down) / width(channel));
    if (cost < best_cost) best_cost = cost, best = down;
  }
  std::vector<double> factors;
  double largest = 0, sum = 0, count = 0;
  for (const Interval& channel : channels) largest = std::max(largest, factor(channel, best));
  for (const Interval& channel : channels) {
    factors.push_back(std::max(factor(channel, best), largest / kMostRatio));
    if (width(channel) > 0) sum += std::log(factors.back()), ++count;
  }
  const double mean = count > 0 ? std::exp(sum / count) : 1;
  for (size_t c = 0; c < factors.size(); ++c) factors[c] = width(channels[c]) > 0 ? factors[c] / mean : 1;
  return factors;
}

void equalize_function(const Graph& fused, const FunctionPair& pair, const ChannelRanges& ranges, double power,
                       FloatParams& params) {
  const Node& lookup = fused.nodes[pair.lookup];
  std::vector<float> input, output;
  for (const double factor : fitting_factors(ranges.input)) input.push_back(static_cast<float>(factor));
  for (const double factor : fitting_factors(ranges.output))
    output.push_back(pair.readers.empty() ? 1.0f : static_cast<float>(std::pow(factor, -power)));
  divide_outputs(fused.nodes[pair.layer], input, params);
  for (const int reader : pair.readers) divide_inputs(fused.nodes[reader], output, params);
  params[lookup.name + ".input_scale"] = std::move(input);
  params[lookup.name + ".output_scale"] = std::move(output);
}

namespace {

bool is_depthwise(const Graph& graph, int layer) {
  const Node& node = graph.nodes[layer];
  return node.groups > 1 && node.groups == graph.nodes[node.inputs[0]].shape.c;
}

}  // namespace

std::vector<LayerPair> depthwise_pairs(const Graph& fused) {
  std::vector<LayerPair> pairs;
  for (const LayerPair& pair : layer_pairs(fused)) {
    const Activation activation = fused.nodes[pair.first].activation;
    const bool relu = activation == Activation::relu || activation == Activation::relu6;
    const bool bounded = std::any_of(pair.between.begin(), pair.between.end(), [&](int n) {
      return fused.nodes[n].op == Op::relu6 || fused.nodes[n].activation == Activation::relu6;
    });
    if (relu && !bounded && (is_depthwise(fused, pair.first) || is_depthwise(fused, pair.second)))
      pairs.push_back(pair);
  }
  return pairs;
}

void equalize_depthwise(const Graph& fused, const LayerPair& pair, const std::vector<double>& largest,
                        FloatParams& params) {
  constexpr double kMargin = 1.05, kMostFactor = 32;  // of channels that are nearly 0, which other images may change
  const Node& first = fused.nodes[pair.first];
  const double end = first.activation == Activation::relu6 ? 6 : *std::max_element(largest.begin(), largest.end());
  const double power = is_depthwise(fused, pair.second) ? 1 : 0.5;
  std::vector<float> outputs, inputs;
  for (const double channel : largest) {
    const double fits = channel > 0 ? end / (kMargin * channel) : kMostFactor;
    const double factor = std::pow(std::clamp(fits, 1.0, kMostFactor), power);
    outputs.push_back(static_cast<float>(1 / factor));
    inputs.push_back(1 / outputs.back());
  }
  divide_outputs(first, outputs, params);
  divide_inputs(fused.nodes[pair.second], inputs, params);
}

}  // namespace octet
