// SPDX-License-Identifier: Apache-2.0
// Empirical bias correction (Nagel et al., arXiv 1906.04721, section 4.2 and appendix D), made robust: quantizing
// weights and edges shifts a layer's channels, and its bias shifts them back.
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

/// Which parameter of BatchNorm takes the correction. Training that normalizes by each batch's own statistics removes
/// the shift itself and never reads the running mean, so that a correction in the bias would count twice there.
enum class BatchNormTakes { bias, running_mean };

/// Corrects the biases (BatchNorm's where there is one) layer by layer, in order: adds to each channel the trimmed
/// mean, over images and pixels, of its values in the float network less those in the quantized one, whose earlier
/// layers are already corrected. The plain mean of the papers is decided by the few values that a range cuts off, and
/// correcting by it can ruin all others. Layers without a bias, and those with fewer than 128 values a channel, are
/// left alone.
///
/// floats: the float network's weights, by the model's names. x: normalized float [N, C, H, W], which goes through the
/// network as one batch. The model must be calibrated; its ranges stay, and its biases change in place. With
/// running_mean a channel's mean moves by its standard deviation at most: one whose gain is nearly 0 says nothing of
/// its sums.
void correct_biases(QuantizedModel& model, const Weights& floats, const at::Tensor& x,
                    BatchNormTakes takes = BatchNormTakes::bias);

/// Returns the mean of the middle 80 % of n values, which it reorders (Tukey, "The Future of Data Analysis", 1962).
double trimmed_mean(float* values, size_t n);

}  // namespace octet
