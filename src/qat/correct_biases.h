// Empirical bias correction (Nagel et al., arXiv 1906.04721, section 4.2 and appendix D): quantizing weights and edges
// moves the mean of what a layer gives; its bias takes the mean back.
#pragma once

#include <vector>

#include "src/qat/quantized_model.h"
#include "src/quant/equalize.h"

namespace octet {

/// Layer by layer, in order: each bias (of BatchNorm where there is one) gets, channel by channel, the mean of the
/// float network over the pictures minus that of the quantized one, whose earlier layers are corrected already.
/// `wanted`: the float network's moments over these pictures. x: all of them, normalized float [N, C, H, W]; they go
/// through the network together. The model must be calibrated; its ranges stay; a layer
/// without a bias is refused (require_biases()). Changes the model's weights in place.
void correct_biases(QuantizedModel& model, const std::vector<ChannelMoments>& wanted, const at::Tensor& x);

/// Means of the same pictures through the quantized network as it is; deviations are not filled.
std::vector<ChannelMoments> quantized_means(QuantizedModel& model, const at::Tensor& x);

}  // namespace octet
