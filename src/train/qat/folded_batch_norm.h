// SPDX-License-Identifier: Apache-2.0
// BatchNorm with fixed statistics as part of the layer before it: gain * product(x, weight) + bias. QAT with frozen
// BatchNorm multiplies the fake-quantized weight by the gain: codes and scales remain those of the weight itself, and
// deployment folds the gain into the multiplier.
#pragma once

#include <vector>

#include "src/train/model/model.h"

namespace octet {

struct FixedBatchNorm {
  at::Tensor gamma, beta, mean, variance;  ///< float [K]
  at::Tensor offset;                       ///< bias of the layer before; undefined: none
  double epsilon = kBatchNormEpsilon;
};

/// Returns the BatchNorm that is fused into a conv2d or linear whose bias is `offset`.
FixedBatchNorm fixed_batch_norm(const Weights& weights, const Node& node, const at::Tensor& offset);

struct GainAndBias {
  at::Tensor gain;  ///< gamma / sqrt(variance + eps)
  at::Tensor bias;  ///< beta + (offset - mean) * gain
};

/// Computes them by plain operators, which defines them.
GainAndBias gain_and_bias(const FixedBatchNorm& batch_norm);

/// Computes those of a whole network, and their gradients, in a few launches on a GPU.
std::vector<GainAndBias> gains_and_biases(const std::vector<FixedBatchNorm>& batch_norms);

/// Returns the layer with its weight times the gain, and the bias.
LayerParameters fold_batch_norm(const LayerParameters& layer, const GainAndBias& folded);

/// A layer without its weight: its bias, or the BatchNorm to fold into weight and bias.
class FoldedLayer {
 public:
  /// Takes them from `weights` as these are now.
  FoldedLayer(const Node& node, const Weights& weights);
  LayerParameters with(const at::Tensor& weight) const;

 private:
  GainAndBias folded_;
};

}  // namespace octet
