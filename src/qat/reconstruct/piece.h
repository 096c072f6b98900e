// What is rounded together, and where its error is seen.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/model/walk_part.h"
#include "src/qat/quantized_model.h"
#include "src/qat/reconstruct/drop.h"

namespace octet {

/// Layers whose weights are rounded together, in a part of the network that lies between two places where one tensor is
/// all that is known.
struct RoundingUnit {
  GraphPart part;
  std::vector<int> layers;
};

/// Every conv2d and linear by itself (AdaRound); or (`blocks`, BRECQ) all of a part together: a residual block, an
/// inverted residual, what branches and comes together again; in a chain each by itself. In the network's order. Throws
/// Error(usage) for blocks of a network with several outputs.
std::vector<RoundingUnit> rounding_units(const Graph& graph, bool blocks);

/// A unit as functions of what node `source` gives, [N, C, H, W]: in the quantized network, with the weights of its
/// layers, which may require gradients, and in the float one.
struct Piece {
  int source = 0;
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights)> quantized;
  std::function<at::Tensor(const at::Tensor& x)> wanted;
  /// As `quantized`, but edges inside drop. x has dropped already. Of a block; else empty.
  std::function<at::Tensor(const at::Tensor& x, const std::vector<at::Tensor>& weights, const Drop& drop)> dropping;
  int channels = 0;  ///< of what both give
};

/// The layer before a residual; its activation where no residual comes before it. `floats` must outlive it.
Piece lone_layer(const Graph& graph, int layer, const Weights& floats);

/// All that lies in the part, its edges quantized as deployed, but not what it gives: rounding cannot help that.
/// `model` and `floats` must outlive it, and the model's scales stay.
Piece block(QuantizedModel& model, const RoundingUnit& unit, const Weights& floats);

}  // namespace octet
