#include "src/qat/reconstruct/folded_layer.h"

namespace octet {

FoldedLayer::FoldedLayer(const Node& node, const Weights& weights) {
  const at::Tensor bias = node.bias ? weights.at(node.name + ".bias") : at::Tensor();
  if (!node.batch_norm.empty())
    folded_ = gain_and_bias(fixed_batch_norm(weights, node, bias));
  else
    folded_.bias = bias;
}

LayerParameters FoldedLayer::with(const at::Tensor& weight) const {
  if (folded_.gain.defined()) return fold_batch_norm({weight, {}}, folded_);
  return {weight, folded_.bias};
}

}  // namespace octet
