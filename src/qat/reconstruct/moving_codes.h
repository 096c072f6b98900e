// Weights on their grid, whose codes and scales a gradient moves: what rounding learned is the beginning.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/fake_quantize/weight_codes.h"

namespace octet {

/// Of one layer. A code is round(latent): the gradient passes it straight through (Bengio et al., arXiv 1308.3432). A
/// scale is what it was times e^gain, so that a step changes large and small ones by equal shares. What has the highest
/// magnitude of all codes keeps it, for it carries the scale (src/quant/weight_scales.h).
class MovingCodes {
 public:
  /// rounded: [K, ...], on the grid of `scale` [K]; floats: what it was before. A latent begins at the float weight as
  /// far as that lies within 0.45 of the code: a weight that is nearly in the middle of two codes is the first to go
  /// over. per_tensor: there is one gain.
  MovingCodes(const at::Tensor& rounded, const at::Tensor& floats, const std::vector<float>& scale,
              const WeightCodes& codes, bool per_tensor);

  at::Tensor latent() const { return latent_; }  ///< [K, ...], in steps of the grid; shared, to be moved
  at::Tensor gain() const { return gain_; }      ///< [K], or [1]; the same
  at::Tensor weight() const;                     ///< on the grid

  struct Gradients {
    at::Tensor latent, gain;
  };
  Gradients gradients(const at::Tensor& by_weight, const at::Tensor& weight) const;
  void hold();  ///< after a step: latents stay where they round to a code

 private:
  at::Tensor scale() const;
  WeightCodes codes_;
  at::Tensor first_scale_, latent_, gain_, free_;  // free_: 0 where the code stays
};

}  // namespace octet
