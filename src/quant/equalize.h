// Cross-layer equalization and bias absorption (Nagel et al., "Data-Free Quantization Through Weight Equalization and
// Bias Correction", arXiv 1906.04721, sections 4.1): between two layers a channel may be scaled by any s > 0, because
// relu(s x) = s relu(x). s is chosen so that the weights that write the channel and those that read it have one range,
// which helps where a whole weight has one scale. No LibTorch.
#pragma once

#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/quant/float_params.h"

namespace octet {

/// Two convolutions or linears with nothing between them but what passes a channel's scale on (src/graph/op_traits.h:
/// relu, pools, flatten, resize), each read by the next alone.
struct LayerPair {
  int first = 0, second = 0;
  std::vector<int> between;  ///< nodes from first's reader to second's input
};

/// Those of a fused graph, in order; a relu6 among them counts as relu.
std::vector<LayerPair> layer_pairs(const Graph& fused);

/// The fused graph with relu in place of relu6 inside of pairs, as in the paper: a bound of 6 would be another one in
/// each channel. It is another float network where values passed 6. Throws Error(usage) if there is no pair.
Graph equalizable(Graph fused);

/// Scales the channels between all pairs of an equalizable() graph until nothing moves. s = sqrt(r1 / r2), with the
/// largest magnitudes r1 of the weights that write the channel and r2 of those that read it; in double, rounded once.
/// A BatchNorm's gain (its magnitude) goes into the weights of these layers first; the network's function stays, in
/// training too. A channel without weights on one side stays as it is.
void equalize(const Graph& graph, FloatParams& params);

/// What the channels of a layer are, before residual and activation; by node, empty for those without weights.
struct ChannelMoments {
  std::vector<double> mean, deviation;
};

/// Where a channel of a pair's first layer is nearly always positive, c = max(0, mean - 3 deviation) of its bias goes
/// to the second layer's, so that the edge between them has a smaller range. Only between layers that both have a bias
/// or BatchNorm, with a relu and no padding between them (zeros of the padding would have to be -c).
void absorb_biases(const Graph& graph, const std::vector<ChannelMoments>& moments, FloatParams& params);

/// The parameter to which a constant of each output channel can be added: of BatchNorm, or of the layer. "": it has
/// neither.
std::string bias_name(const Node& node);

/// Throws Error(usage) naming a layer without one: there bias correction has nothing to correct.
void require_biases(const Graph& fused);

}  // namespace octet
