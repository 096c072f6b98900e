// SPDX-License-Identifier: Apache-2.0
#include "src/quant/scale_classes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "src/net/op_traits.h"

namespace octet {
namespace {

constexpr double kMostFactor = 256;  // a channel that is nearly 0 may not be so in other images

bool is_depthwise(const Graph& graph, const Node& node) {
  return node.op == Op::conv2d && node.groups == graph.nodes[node.inputs[0]].shape.c;
}

/// Divides the parameter by a number for each of its first dimension's channels.
void divide_rows(FloatParams& params, const std::string& name, const std::vector<float>& divisors) {
  std::vector<float>& values = params.at(name);
  const size_t row = values.size() / divisors.size();
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(values[i] / double{divisors[i / row]});
}

}  // namespace

void divide_outputs(const Node& layer, const std::vector<float>& divisors, FloatParams& params) {
  if (layer.batch_norm.empty()) {
    divide_rows(params, layer.name + ".weight", divisors);
    if (layer.bias) divide_rows(params, layer.name + ".bias", divisors);
  } else {
    divide_rows(params, layer.batch_norm + ".weight", divisors);
    divide_rows(params, layer.batch_norm + ".bias", divisors);
  }
}

void divide_inputs(const Node& layer, const std::vector<float>& divisors, FloatParams& params) {
  std::vector<float>& weight = params.at(layer.name + ".weight");
  const size_t outputs = static_cast<size_t>(layer.out_channels), groups = static_cast<size_t>(layer.groups);
  const size_t inputs = divisors.size() / groups, taps = weight.size() / (outputs * inputs);
  for (size_t i = 0; i < weight.size(); ++i) {
    const size_t group = i / (inputs * taps) / (outputs / groups), channel = group * inputs + i / taps % inputs;
    weight[i] = static_cast<float>(weight[i] / double{divisors[channel]});
  }
}

ScaleClasses::ScaleClasses(const Graph& fused) : graph_(fused) {
  const int nodes = static_cast<int>(fused.nodes.size());
  int elements = 0;
  for (const Node& node : fused.nodes) {
    first_.push_back(elements);
    elements += node.shape.c;
  }
  parents_.resize(elements);
  std::iota(parents_.begin(), parents_.end(), 0);
  kept_.resize(elements);
  for (int n = 0; n < nodes; ++n) join(n);
  for (const int output : fused.outputs) keep(output);
  for (int e = 0; e < elements; ++e)
    if (kept_[e]) kept_[root(e)] = true;
  writers_.resize(elements);
  depthwise_.assign(elements, true);
  for (int n = 0; n < nodes; ++n) {
    const Node& node = fused.nodes[n];
    if (!has_weight(node.op)) continue;
    for (int c = 0; c < node.shape.c; ++c) ++writers_[root(first_[n] + c)];
    if (is_depthwise(fused, node)) continue;
    const int read = node.inputs[0];
    for (int c = 0; c < fused.nodes[read].shape.c; ++c) depthwise_[root(first_[read] + c)] = false;
  }
}

/// Puts the channels of a node into the classes of those that they are made of.
void ScaleClasses::join(int n) {
  const Node& node = graph_.nodes[n];
  const auto input = [&](size_t i) -> const Node& { return graph_.nodes[node.inputs[i]]; };
  const auto pass_on = [&](size_t i) {
    for (int c = 0; c < node.shape.c; ++c) unite(n, c, node.inputs[i], c);
  };
  const bool same_channels = std::all_of(node.inputs.begin(), node.inputs.end(),
                                         [&](int i) { return graph_.nodes[i].shape.c == node.shape.c; });
  if (has_weight(node.op)) {
    if (node.inputs.size() > 1) pass_on(1);  // the residual
  } else if (node.op == Op::concat) {
    for (size_t i = 0, channel = 0; i < node.inputs.size(); ++i)
      for (int c = 0; c < input(i).shape.c; ++c) unite(n, static_cast<int>(channel++), node.inputs[i], c);
  } else if (node.op == Op::flatten) {
    const int pixels = input(0).shape.h * input(0).shape.w;
    for (int c = 0; c < node.shape.c; ++c) unite(n, c, node.inputs[0], c / pixels);
  } else if (node.op == Op::subsample_pad) {  // the other channels are 0, whatever their scale
    const int before = (node.shape.c - input(0).shape.c) / 2;
    for (int c = 0; c < input(0).shape.c; ++c) unite(n, before + c, node.inputs[0], c);
  } else if ((node.op == Op::add || traits(node.op).passes_scale_on) && same_channels) {
    for (size_t i = 0; i < node.inputs.size(); ++i) pass_on(i);
  } else {
    keep(n);
    for (const int i : node.inputs) keep(i);
  }
}

int ScaleClasses::root(int element) const {
  while (parents_[element] != element) element = parents_[element] = parents_[parents_[element]];
  return element;
}

void ScaleClasses::unite(int node, int channel, int other, int other_channel) {
  parents_[root(first_[node] + channel)] = root(first_[other] + other_channel);
}

void ScaleClasses::keep(int node) {
  for (int c = 0; c < graph_.nodes[node].shape.c; ++c) kept_[first_[node] + c] = true;
}

int ScaleClasses::of(int node, int channel) const {
  const int element = root(first_[node] + channel);
  return kept_[element] ? -1 : element;
}

bool ScaleClasses::any() const {
  for (size_t e = 0; e < parents_.size(); ++e)
    if (!kept_[root(static_cast<int>(e))]) return true;
  return false;
}

std::vector<float> ScaleClasses::factors(const ByChannel& largest, const Powers& powers) const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<double> most(parents_.size(), kNone);
  for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
    const std::vector<float>& of_node = largest[n];
    const double reach = *std::max_element(of_node.begin(), of_node.end());
    for (int c = 0; c < graph_.nodes[n].shape.c; ++c)
      if (const int e = of(n, c); e >= 0 && of_node[c] > 0) most[e] = std::min(most[e], reach / of_node[c]);
  }
  std::vector<float> result(most.size(), 1.0f);
  for (size_t e = 0; e < most.size(); ++e) {
    if (most[e] == kNone) continue;
    const double power = depthwise_[e] ? powers.depthwise : writers_[e] > 1 ? powers.joined : powers.inner;
    result[e] = static_cast<float>(std::pow(std::min(most[e], kMostFactor), power));
  }
  return result;
}

double ScaleClasses::bits(const std::vector<float>& factors) const {
  double sum = 0, count = 0;
  for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n)
    for (int c = 0; c < graph_.nodes[n].shape.c; ++c)
      if (const int e = of(n, c); e >= 0) sum += std::log2(factors[e]), ++count;
  return count > 0 ? sum / count : 0;
}

std::vector<float> ScaleClasses::of_node(int node, const std::vector<float>& factors) const {
  std::vector<float> result;
  for (int c = 0; c < graph_.nodes[node].shape.c; ++c) {
    const int e = of(node, c);
    result.push_back(e < 0 ? 1.0f : factors[e]);
  }
  return result;
}

void ScaleClasses::scale(const std::vector<float>& factors, FloatParams& params) const {
  for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
    const Node& node = graph_.nodes[n];
    if (!has_weight(node.op)) continue;
    std::vector<float> written = of_node(n, factors);
    for (float& factor : written) factor = 1 / factor;
    divide_outputs(node, written, params);
    divide_inputs(node, of_node(node.inputs[0], factors), params);
  }
}

}  // namespace octet
