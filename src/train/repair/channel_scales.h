// SPDX-License-Identifier: Apache-2.0
// A scale for each channel of the activations before and behind a function such as SiLU, and around depthwise layers
// (src/quant/equalize.h), by what a float network's channels are over some images.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/quant/equalize.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

/// A network of which some lookups have scales for their channels.
struct ScaledNetwork {
  Graph graph;
  Weights weights;
  std::vector<std::string> lookups;  ///< their names
};

/// Returns the graph with a scale for each channel of the lookups whose scales are parameters that there are.
Graph with_channel_scales(Graph graph, const std::function<bool(const std::string& parameter)>& is_there);

/// The ranges of the channels around a network's lookups and depthwise layers.
class ChannelScales {
 public:
  /// model: not quantized, or its values as if it were not.
  explicit ChannelScales(QuantizedModel& model);

  void see(const at::Tensor& x);            ///< a batch of images: the channels around lookups
  void see_depthwise(const at::Tensor& x);  ///< those around depthwise layers

  bool any() const { return !pairs_.empty(); }  ///< of the lookups
  bool any_depthwise() const { return !depthwise_.empty(); }

  /// Returns the weights with the channels of all depthwise_pairs() equalized; empty if there is none.
  Weights depthwise_equalized(const Weights& weights) const;

  /// Returns the network `graph`, whose fused form is the model's, with a scale for each channel where the channels'
  /// ranges differ by at least `least_spread`. power: as of equalize_function().
  ScaledNetwork scaled(Graph graph, const Weights& weights, double least_spread, double power) const;

  /// What a scaled network must leave of the error: functions with a table for each channel cost time, since they run
  /// by themselves.
  static constexpr double kPays = 0.95;

  /// Returns of several scaled() networks the one that loses least by `lost`, if that pays against `graph`. First only
  /// lookups whose channels differ most get scales, then all, whether or not the first pays: where one layer ruins the
  /// outputs, nothing that leaves it as it is shows a gain.
  using Lost = std::function<double(const Graph& graph, const Weights& weights)>;
  std::optional<ScaledNetwork> best(const Graph& graph, const Weights& weights, const Lost& lost) const;

 private:
  void see(const at::Tensor& x, const std::vector<bool>& nodes);
  std::vector<Interval> channels(int node) const;

  QuantizedModel& model_;
  std::vector<FunctionPair> pairs_;
  std::vector<LayerPair> depthwise_;
  std::vector<at::Tensor> least_, largest_;  ///< by node, [C]; undefined where none was seen
};

}  // namespace octet
