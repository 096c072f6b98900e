// SPDX-License-Identifier: Apache-2.0
#include "src/train/repair/channel_scales.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/core/GradMode.h>

#include "src/train/model/device.h"

namespace octet {

namespace {

/// Returns the parameters as tensors shaped and placed as those of the same name, or as rows.
Weights tensors(FloatParams& params, const Weights& like) {
  const c10::NoGradGuard no_grad;
  Weights result;
  for (auto& [name, values] : params) {
    const auto known = like.find(name);
    const std::vector<int64_t> sizes =
        known == like.end() ? std::vector<int64_t>{static_cast<int64_t>(values.size())} : known->second.sizes().vec();
    at::Tensor tensor = at::from_blob(values.data(), sizes, at::kFloat).clone().to(device_of(like));
    tensor.requires_grad_(known != like.end() && known->second.requires_grad());
    result.emplace(name, std::move(tensor));
  }
  return result;
}

}  // namespace

Graph with_channel_scales(Graph graph, const std::function<bool(const std::string& parameter)>& is_there) {
  for (Node& node : graph.nodes)
    if (node.op == Op::lookup && is_there(node.name + ".input_scale")) node.groups = node.shape.c;
  return graph;
}

ChannelScales::ChannelScales(QuantizedModel& model)
    : model_(model),
      pairs_(function_pairs(model.prepared().graph)),
      depthwise_(depthwise_pairs(model.prepared().graph)),
      least_(model.prepared().graph.nodes.size()),
      largest_(least_.size()) {}

void ChannelScales::see(const at::Tensor& x) {
  std::vector<bool> wanted(least_.size());
  for (const FunctionPair& pair : pairs_) wanted[pair.layer] = wanted[pair.lookup] = true;
  see(x, wanted);
}

void ChannelScales::see_depthwise(const at::Tensor& x) {
  std::vector<bool> wanted(least_.size());
  for (const LayerPair& pair : depthwise_) wanted[pair.first] = true;
  see(x, wanted);
}

void ChannelScales::see(const at::Tensor& x, const std::vector<bool>& nodes) {
  const c10::NoGradGuard no_grad;
  const FullPrecision full;
  model_.forward_partly(x, std::vector<bool>(nodes.size(), false), [&](int n, const at::Tensor& y) {
    if (!nodes[n]) return;
    const at::Tensor lo = at::amin(y, {0, 2, 3}), hi = at::amax(y, {0, 2, 3});
    least_[n] = least_[n].defined() ? at::minimum(least_[n], lo) : lo;
    largest_[n] = largest_[n].defined() ? at::maximum(largest_[n], hi) : hi;
  });
}

std::vector<Interval> ChannelScales::channels(int node) const {
  const at::Tensor lo = to_host(least_[node]), hi = to_host(largest_[node]);
  std::vector<Interval> result;
  for (int64_t c = 0; c < lo.size(0); ++c)
    result.push_back({lo.const_data_ptr<float>()[c], hi.const_data_ptr<float>()[c]});
  return result;
}

std::optional<ScaledNetwork> ChannelScales::best(const Graph& graph, const Weights& weights, const Lost& lost) const {
  constexpr double kDiffer = 4, kAny = 0;  // spreads
  std::optional<ScaledNetwork> result;
  double least = kPays * lost(graph, weights);
  for (const double spread : {kDiffer, kAny}) {
    for (const double power : {1.0, 0.5}) {
      ScaledNetwork network = scaled(graph, weights, spread, power);
      if (network.lookups.empty()) continue;
      const double loses = lost(network.graph, network.weights);
      if (loses >= least) continue;
      least = loses;
      result = std::move(network);
    }
  }
  return result;
}

ScaledNetwork ChannelScales::scaled(Graph graph, const Weights& weights, double least_spread, double power) const {
  const Prepared& prepared = model_.prepared();
  FloatParams params = float_params(weights);
  ScaledNetwork result{.graph = std::move(graph), .weights = {}, .lookups = {}};
  for (const FunctionPair& pair : pairs_) {
    const Node& lookup = prepared.graph.nodes[pair.lookup];
    ChannelRanges ranges{channels(pair.layer), channels(pair.lookup)};
    const QParams& codes = prepared.range[pair.lookup];
    for (Interval& channel : ranges.input)
      channel = told_apart(lookup.function, channel, codes.quant_max - codes.quant_min);
    const double differ = std::max(spread(ranges.input), pair.readers.empty() ? 0 : spread(ranges.output));
    if (differ < least_spread) continue;
    equalize_function(prepared.graph, pair, ranges, power, params);
    result.lookups.push_back(lookup.name);
    for (Node& node : result.graph.nodes)
      if (node.name == lookup.name) node.groups = node.shape.c;
  }
  result.weights = tensors(params, weights);
  return result;
}

Weights ChannelScales::depthwise_equalized(const Weights& weights) const {
  if (depthwise_.empty()) return {};
  FloatParams params = float_params(weights);
  for (const LayerPair& pair : depthwise_) {
    std::vector<double> largest;
    for (const Interval& channel : channels(pair.first)) largest.push_back(channel.hi);
    equalize_depthwise(model_.prepared().graph, pair, largest, params);
  }
  return tensors(params, weights);
}

}  // namespace octet
