// SPDX-License-Identifier: Apache-2.0
// Channels whose values differ much: a common scale leaves the small ones few codes. By what they are over some images,
// in place of what weights are (src/quant/equalize.h), all are brought to one range; the layers around them take the
// factors, and the network computes the same function. On both sides of a function such as SiLU, where f(s x) is not
// s f(x), a lookup with a table for each channel does it: y = b f(a x). Behind a relu no table is needed. No LibTorch.
#pragma once

#include <vector>

#include "src/net/graph.h"
#include "src/quant/curves.h"
#include "src/quant/equalize.h"
#include "src/quant/node_constants.h"

namespace octet {

/// A convolution or linear that a lookup alone reads. readers: the layers that read the lookup, if nothing else does;
/// else none, and the lookup's output keeps its scale.
struct CurvePair {
  int layer = 0, lookup = 0;
  std::vector<int> readers;
};

/// Returns the pairs of a fused graph in its order.
std::vector<CurvePair> curve_pairs(const Graph& fused);

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
void equalize_curve(const Graph& fused, const CurvePair& pair, const ChannelRanges& ranges, double power,
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
