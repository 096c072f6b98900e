// Bits by layer: from what each layer costs alone to a list of plans, from the most bits to the fewest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/graph/graph.h"
#include "src/quant/quant_spec.h"

namespace octet {

/// Something whose bits are chosen: the weights of a layer, or the edge that it writes.
struct BitChoice {
  enum class What { weights, edge };
  int node = 0;  ///< of the fused graph
  What what = What::weights;
  /// By candidate: error power of the logits over their power, with this alone of so many bits, less the same at the
  /// first candidate. Errors of layers add up nearly as if they were independent: Lin, Talathi and Annapureddy, "Fixed
  /// point quantization of deep convolutional networks", 2016, equation 12.
  std::vector<double> noise;
};

/// By choice: which candidate it has.
using BitLevels = std::vector<int>;

struct BitStep {
  BitLevels levels;
  double noise = 0;  ///< the sum over choices
  double cost = 0;
};

/// From every choice at the first candidate to each at the last, or as far as the cost falls. Each step takes the
/// fewest error for what it saves, among all choices and all of their later candidates: the lower convex hull of error
/// against cost (Shoham and Gersho, "Efficient bit allocation for an arbitrary set of quantizers", 1988), exact where
/// the cost is a sum over choices.
std::vector<BitStep> bit_steps(const std::vector<BitChoice>& choices,
                               const std::function<double(const BitLevels&)>& cost);

/// The last step found to keep a promise, by halving between `kept`, which does, and `lost`, a later one which does not
/// (or the number of steps). Of two steps in the middle the one of more bits is asked.
size_t last_that_keeps(size_t kept, size_t lost, const std::function<bool(size_t step)>& keeps);

/// What is chosen of a fused graph: every layer's weights, and with `edges` every edge that a layer writes, that have
/// the general weight_bits and activation_bits of `spec`: neither pinned by name, nor first, last or picture.
std::vector<BitChoice> bit_choices(const Graph& fused, const QuantSpec& spec, bool edges);

/// `levels` as entries of quant.layers, one a node, for a spec whose general bits are candidates.front().
std::vector<LayerBits> layers_of(const Graph& fused, const std::vector<BitChoice>& choices, const BitLevels& levels,
                                 const std::vector<int>& candidates);

/// Of a whole network.
struct BitCost {
  double weight_bits = 0;     ///< mean over all weights
  double weight_bytes = 0;    ///< packed, without scales
  double bit_operations = 0;  ///< multiply-adds, each times bits of its weight and of its code
};

/// Costs of plans of one network; `levels` of `choices` stand over what `spec` says.
class BitCosts {
 public:
  BitCosts(const Graph& fused, const QuantSpec& spec, const std::vector<BitChoice>& choices,
           std::vector<int> candidates);
  BitCost operator()(const BitLevels& levels) const;

 private:
  struct Layer {
    double weights = 0, multiply_adds = 0;
    int weight_bits = 0, code_bits = 0;        ///< where no choice says otherwise
    int weight_choice = -1, code_choice = -1;  ///< of the choices
  };
  std::vector<int> candidates_;
  std::vector<Layer> layers_;
};

}  // namespace octet
