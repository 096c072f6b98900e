// SPDX-License-Identifier: Apache-2.0
// Cross-layer equalization and bias absorption (Nagel et al., "Data-Free Quantization Through Weight Equalization and
// Bias Correction", arXiv 1906.04721, section 4.1): a channel between two layers may be scaled by any s > 0, because
// relu(s x) = s relu(x). s is chosen so that the weights that write the channel and those that read it have the same
// range, which helps where a weight tensor has one scale. No LibTorch.
//
// And the same by what channels are over some images (equalize_functions.cpp), where their values differ much and a
// common scale leaves the small ones few codes: all are brought to one range; the layers around them take the factors,
// and the network computes the same function. On both sides of a function such as SiLU, where f(s x) is not s f(x), a
// lookup with a table for each channel does it: y = b f(a x). Behind a relu no table is needed.
#pragma once

#include <string>
#include <vector>

#include "src/net/graph.h"
#include "src/quant/calibrate.h"
#include "src/quant/functions.h"
#include "src/quant/node_constants.h"

namespace octet {

/// Two convolutions or linears. Between them are only operators that pass a channel's scale on (src/net/op_traits.h:
/// relu, pools, flatten, resize), and each node is read by the next one alone.
struct LayerPair {
  int first = 0, second = 0;
  std::vector<int> between;  ///< the nodes from first's reader to second's input
};

/// Returns the pairs of a fused graph, in graph order. A relu6 counts as a relu.
std::vector<LayerPair> layer_pairs(const Graph& fused);

/// Returns the fused graph with relu in place of relu6 inside of pairs, as in the paper: scaling would turn the bound 6
/// into a different bound in each channel. The float network changes where values exceeded 6. Throws Error(usage) if
/// there is no pair.
Graph equalizable(Graph fused);

/// Scales the channels between all pairs of an equalizable() graph, repeatedly until no scale changes, by
/// s = sqrt(r1 / r2): r1 and r2 are the max magnitudes of the weights that write and that read the channel. Factors are
/// kept in double and rounded once. The magnitude of a BatchNorm's gain goes into the weights of these layers first.
/// The network computes the same function, in training too. A channel whose weights on one side are all 0 stays.
void equalize(const Graph& graph, FloatParams& params);

/// Mean and standard deviation of each output channel of a layer, before residual and activation; empty for a node
/// without weights.
struct ChannelMoments {
  std::vector<double> mean, deviation;
};

/// Moves a constant from the biases of a pair's first layer to those of the second, so that the activation between them
/// has a smaller range: c = max(0, mean - 3 deviation) for each channel, which is then nearly always positive. Only for
/// layers that both have a bias or BatchNorm, with a relu and no padding between them (padding would have to be -c).
/// `moments` has an entry for each node.
void absorb_biases(const Graph& graph, const std::vector<ChannelMoments>& moments, FloatParams& params);

/// Returns the name of the parameter that holds a constant for each output channel: the bias of the node's BatchNorm,
/// else of the layer itself; "" if it has neither.
std::string bias_name(const Node& node);

/// Throws Error(usage) naming a layer if none has such a parameter: bias correction would have nothing to correct.
/// Layers without one among others stay as they are, such as those that an ONNX file's slices became.
void require_biases(const Graph& fused);

/// A convolution or linear that a lookup alone reads. readers: the layers that read the lookup, if nothing else does;
/// else none, and the lookup's output keeps its scale.
struct FunctionPair {
  int layer = 0, lookup = 0;
  std::vector<int> readers;
};

/// Returns the pairs of a fused graph in its order.
std::vector<FunctionPair> function_pairs(const Graph& fused);

/// The values of a pair for each channel, over some images.
struct ChannelRanges {
  std::vector<Interval> input;   ///< of the lookup, cut to what its function tells apart in `steps` steps
  std::vector<Interval> output;  ///< of the lookup
};

/// Returns by how much the ranges of channels differ: the largest over the median.
double spread(const std::vector<Interval>& channels);

/// Returns for each channel the number by which its range is to be divided, so that all fit one range and fill it as
/// well as they can: the range's ends are chosen so that the codes that channels leave unused are fewest in bits, mean
/// over channels. Zero is in the range. The geometric mean of the numbers is 1, and a channel of zeros has 1.
std::vector<double> fitting_factors(std::vector<Interval> channels);

/// Gives the pair's lookup a scale for each channel, and changes the weights around it accordingly. `power` is 1 where
/// the output's channels are to be of one range; a layer that is not depthwise has one scale for the weights of all its
/// input channels, and less may be better. The lookup then needs `groups` in the graph.
void equalize_function(const Graph& fused, const FunctionPair& pair, const ChannelRanges& ranges, double power,
                       FloatParams& params);

/// Returns the layer_pairs() of a fused graph with a relu or relu6 behind the first layer, of which one is depthwise.
std::vector<LayerPair> depthwise_pairs(const Graph& fused);

/// Brings the channels that the pair's first layer gives to one range, that of the largest, or 6 behind a relu6.
/// largest: of each channel over some images. A depthwise layer has a scale for the weights of each channel that it
/// reads, which costs nothing; others share one, so their channels go half of the way (in the logarithm), as Xiao et
/// al. do between linear layers ("SmoothQuant", arXiv 2211.10438, section 4). A relu6 then cuts off what exceeds the
/// largest by 5 %.
void equalize_depthwise(const Graph& fused, const LayerPair& pair, const std::vector<double>& largest,
                        FloatParams& params);

}  // namespace octet
