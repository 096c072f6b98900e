// SPDX-License-Identifier: Apache-2.0
// Empirical bias correction (Nagel et al., arXiv 1906.04721, section 4.2 and appendix D): quantizing weights and edges
// shifts the means of a layer's channels, and its bias shifts them back.
#pragma once

#include <vector>

#include "src/quant/equalize.h"
#include "src/train/model/model.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

/// Measures mean and deviation of each channel of a float network's conv2d and linear nodes, with BatchNorm and bias
/// but before residual and activation, over images in any number of batches.
class MomentsObserver {
 public:
  MomentsObserver(const Graph& fused, const Weights& weights);
  void see(const at::Tensor& x);  ///< normalized float [N, C, H, W]
  std::vector<ChannelMoments> moments() const;

 private:
  struct Sums {
    at::Tensor values, squares;  ///< double [K], without the bias, which is added at the end
    double count = 0;
    at::Tensor bias;
  };
  const Graph& graph_;
  const Weights& weights_;
  std::vector<Sums> sums_;  // by node
};

/// Corrects the biases (BatchNorm's where there is one) layer by layer, in order: adds to each channel its mean in the
/// float network less its mean in the quantized one, whose earlier layers are already corrected. `wanted` are the float
/// network's moments over x, normalized float [N, C, H, W], which goes through the network as one batch. The model must
/// be calibrated; its ranges stay, and its weights change in place. Throws where require_biases() does.
void correct_biases(QuantizedModel& model, const std::vector<ChannelMoments>& wanted, const at::Tensor& x);

/// Returns the means of x in the quantized network as it is; deviations are empty.
std::vector<ChannelMoments> quantized_means(QuantizedModel& model, const at::Tensor& x);

}  // namespace octet
