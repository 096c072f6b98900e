// SPDX-License-Identifier: Apache-2.0
// Choosing the bits of each layer: from the error that each layer causes alone to a list of plans, from the most bits
// to the fewest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/net/graph.h"
#include "src/quant/plan.h"

namespace octet {

/// One thing whose bits are chosen: the weights of a layer, or the edge (activation tensor) that it writes.
struct BitChoice {
  enum class What { weights, edge };
  int node = 0;  ///< of the fused graph
  What what = What::weights;
  /// The noise of each candidate number of bits: the error power of the logits over their power when this alone has so
  /// many bits, minus that of the first candidate. Errors of layers add up nearly as if they were independent: Lin,
  /// Talathi and Annapureddy, "Fixed point quantization of deep convolutional networks", 2016, equation 12.
  std::vector<double> noise;
};

/// The index of the candidate that each choice has.
using BitLevels = std::vector<int>;

/// A plan on the way from the most bits to the fewest.
struct BitStep {
  BitLevels levels;
  double noise = 0;  ///< the sum of BitChoice::noise over all choices
  double cost = 0;
};

/// Returns plans from every choice at its first candidate to every choice at its last, or as far as the cost falls.
/// Each step moves the choice and candidate that add the least error for the cost they save: the plans are the lower
/// convex hull of error against cost (Shoham and Gersho, "Efficient bit allocation for an arbitrary set of quantizers",
/// 1988), exactly so where the cost is a sum over choices.
std::vector<BitStep> bit_steps(const std::vector<BitChoice>& choices,
                               const std::function<double(const BitLevels&)>& cost);

/// Returns the last step that satisfies `keeps`, by bisection between `kept`, which does, and `lost`, a later step
/// which does not (or the number of steps). Of two steps in the middle it asks the one with more bits.
size_t last_that_keeps(size_t kept, size_t lost, const std::function<bool(size_t step)>& keeps);

/// Returns what can be chosen in a fused graph: the weights of every layer, and with `edges` every edge that a layer
/// writes, as far as they have the general weight_bits and activation_bits of `spec`: not those that spec.layers names,
/// nor the first and last layers and the network's input.
std::vector<BitChoice> bit_choices(const Graph& fused, const QuantSpec& spec, bool edges);

/// Returns `levels` as entries of quant.layers, one for each node, for a spec whose general bits are
/// candidates.front().
std::vector<LayerBits> layers_of(const Graph& fused, const std::vector<BitChoice>& choices, const BitLevels& levels,
                                 const std::vector<int>& candidates);

/// What a whole network costs.
struct BitCost {
  double weight_bits = 0;     ///< mean bits of a weight
  double weight_bytes = 0;    ///< of the packed weights, without scales
  double bit_operations = 0;  ///< multiply-adds, each counted as bits of its weight times bits of its code
};

/// Computes the costs of plans of one network: the bits of `choices` are those of `levels`, all others those of `spec`.
class BitCosts {
 public:
  BitCosts(const Graph& fused, const QuantSpec& spec, const std::vector<BitChoice>& choices,
           std::vector<int> candidates);
  BitCost operator()(const BitLevels& levels) const;

 private:
  struct Layer {
    double weights = 0, multiply_adds = 0;
    int weight_bits = 0, code_bits = 0;        ///< of what is not chosen
    int weight_choice = -1, code_choice = -1;  ///< index into the choices; -1: not chosen
  };
  std::vector<int> candidates_;
  std::vector<Layer> layers_;
};

}  // namespace octet
