// SPDX-License-Identifier: Apache-2.0
// Which channels of a network's values may be scaled, and which only together. A tensor of activations has one scale
// for all its channels, so a channel that reaches a tenth as far as the widest has a tenth of the codes. Where layers
// write and read it, with operators between them for which f(s x) = s f(x), the channel can be multiplied by s: the
// weights of those that write it take s, which a scale for each output channel takes up without loss, and the weights
// of those that read it take 1 / s. That is equalization (src/quant/equalize.h) by the ranges of values in place of
// those of weights, and through adds and concats. It costs nothing when the network runs. No LibTorch.
#pragma once

#include <vector>

#include "src/net/graph.h"
#include "src/quant/node_constants.h"

namespace octet {

/// By node and channel of a fused graph; empty for nodes that nobody asks about.
using ByChannel = std::vector<std::vector<float>>;

/// Divides what a convolution or linear writes into each channel. divisors: one for each output channel.
void divide_outputs(const Node& layer, const std::vector<float>& divisors, FloatParams& params);

/// Divides the weights by which a convolution or linear reads each channel. divisors: one for each input channel of all
/// groups; behind a flatten those of the image or of the vector.
void divide_inputs(const Node& layer, const std::vector<float>& divisors, FloatParams& params);

/// The channels of all values of a fused graph, in classes that have one factor each.
class ScaleClasses {
 public:
  /// fused: must outlive this.
  explicit ScaleClasses(const Graph& fused);

  bool any() const;  ///< whether any channel may be scaled

  /// The share, as a power, of what would make a channel as wide as the widest. It depends on the layers that read it:
  /// a depthwise layer has a scale for the weights of each channel, and loses nothing by other weights; for all others
  /// the channels that are scaled up have smaller weights, with fewer codes.
  struct Powers {
    double depthwise = 0;  ///< of channels that only depthwise layers read
    double joined = 0;     ///< of others that several layers write, and an add joins
    double inner = 0;      ///< of all others
  };

  /// Returns for each class by how much its channels are to be multiplied: never so far that a channel becomes wider
  /// than the widest of its tensor, and so never beyond 6 where a relu6 cuts it. largest: the largest magnitude of each
  /// channel over some images, of all nodes.
  std::vector<float> factors(const ByChannel& largest, const Powers& powers) const;

  /// Returns how many bits more than now channels have with these factors, as a mean over all that may be scaled.
  double bits(const std::vector<float>& factors) const;

  /// Changes the parameters so that values become those times the factors.
  void scale(const std::vector<float>& factors, FloatParams& params) const;

 private:
  int of(int node, int channel) const;  ///< the class; -1: its scale must stay
  std::vector<float> of_node(int node, const std::vector<float>& factors) const;
  void join(int node);
  void unite(int node, int channel, int other, int other_channel);
  void keep(int node);  ///< its channels keep their scale
  int root(int element) const;

  const Graph& graph_;
  std::vector<int> first_;            // by node: the element of its channel 0
  mutable std::vector<int> parents_;  // by element: union-find
  std::vector<bool> kept_;            // by element; after construction by root
  std::vector<int> writers_;          // by root: layers that write it
  std::vector<bool> depthwise_;       // by root: whether only depthwise layers read it
};

}  // namespace octet
