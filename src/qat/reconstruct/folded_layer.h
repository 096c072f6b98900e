// What a layer computes with besides its weight: its bias, or its BatchNorm folded into both.
#pragma once

#include "src/qat/folded_batch_norm.h"

namespace octet {

class FoldedLayer {
 public:
  /// As `weights` are now.
  FoldedLayer(const Node& node, const Weights& weights);
  LayerParameters with(const at::Tensor& weight) const;

 private:
  GainAndBias folded_;
};

}  // namespace octet
