// BatchNorm with fixed statistics as part of the layer before it: gain * product(x, weight) + bias. QAT with frozen
// BatchNorm multiplies the fake-quantized weight by the gain: codes and scales stay those of the weight itself, and the
// gain is what deployment folds into the multiplier.
#pragma once

#include <string>
#include <vector>

#include "src/model/model.h"

namespace octet {

struct FixedBatchNorm {
  at::Tensor gamma, beta, mean, variance;  ///< float [K]
  at::Tensor offset;                       ///< bias of the layer before; undefined: none
  double epsilon = kBatchNormEpsilon;
};

/// That of a fused conv2d or linear.
FixedBatchNorm fixed_batch_norm(const Weights& weights, const Node& node, const at::Tensor& offset);

struct GainAndBias {
  at::Tensor gain;  ///< gamma / sqrt(variance + eps)
  at::Tensor bias;  ///< beta + (offset - mean) * gain
};

/// In plain operators: the definition.
GainAndBias gain_and_bias(const FixedBatchNorm& batch_norm);

/// Those of a whole network, with their gradients, in a few launches on a GPU.
std::vector<GainAndBias> gains_and_biases(const std::vector<FixedBatchNorm>& batch_norms);

/// layer.weight * gain, and the bias.
LayerParameters fold_batch_norm(const LayerParameters& layer, const GainAndBias& folded);

}  // namespace octet
