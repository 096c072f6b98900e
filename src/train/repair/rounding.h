// SPDX-License-Identifier: Apache-2.0
// Codes of weights that a gradient can move: whether each weight is rounded up or down (AdaRound; Nagel et al., arXiv
// 2004.10568, equations 22 to 25), and codes that move on from there, with their scales.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/core/quantize.h"

namespace octet {

/// Returns a view of float [K] that broadcasts over a weight [K, ...].
at::Tensor by_row(const at::Tensor& of_rows, const at::Tensor& weight);

struct FloatWeight {
  at::Tensor values;  ///< float [K, ...]
  at::Tensor scale;   ///< float [K]
  WeightCodes codes;
};

/// The codes of one or more layers' weights between floats and integers, as one tensor, so that many layers take as
/// many launches as one. A code is the integer below the weight plus h(V) in [0, 1]. Each channel's largest weight,
/// which carries the scale, and weights beyond the codes stay at the nearest code.
class Rounding {
 public:
  explicit Rounding(const std::vector<FloatWeight>& layers);

  at::Tensor& logits() { return logits_; }  ///< V; at first the code plus h(V) is the float weight

  /// h(V) = clamp(g(V), 0, 1) with g(V) = 1.2 sigmoid(V) - 0.1, and the codes.
  struct Soft {
    at::Tensor sigmoid, stretched, up;  ///< sigmoid(V), g(V), h(V)
    at::Tensor codes;
  };
  Soft softly_rounded() const;
  /// Returns the gradient of V, written by hand: of the loss, from its gradients by the layers' weights, plus `push`
  /// times that of the mean over all weights of 1 - |2 h(V) - 1| ^ power, which pushes h(V) to 0 and 1.
  at::Tensor gradient(const Soft& soft, const std::vector<at::Tensor>& by_weights, const at::Tensor& power,
                      const at::Tensor& push) const;

  at::Tensor nearest() const { return nearest_; }  ///< codes by rounding to nearest
  at::Tensor rounded() const;                      ///< codes by V
  /// Returns the layers' weights that have these codes.
  std::vector<at::Tensor> weights(const at::Tensor& codes) const;

 private:
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<int64_t> sizes_;
  at::Tensor scale_, nearest_, lower_, free_, logits_;  // free_: 1 where V decides, else 0
};

/// The codes and scales of one layer's weight, moved by gradients. A code is round(latent), through which the gradient
/// passes straight (Bengio et al., arXiv 1308.3432). A scale is the first one times e^gain, so that a step changes
/// large and small scales in proportion. A code of the highest magnitude stays, for it carries the scale
/// (src/quant/weight_scales.h).
class MovingCodes {
 public:
  /// rounded: [K, ...], on the grid of `scale` [K]; floats: the weight before. A latent starts at the float weight, but
  /// at most 0.45 from the code, so that a weight near the middle of two codes is the first to move. per_tensor: one
  /// gain for all channels.
  MovingCodes(const at::Tensor& rounded, const at::Tensor& floats, const std::vector<float>& scale,
              const WeightCodes& codes, bool per_tensor);

  at::Tensor latent() const { return latent_; }  ///< [K, ...], in steps of the grid; shared, for Adam to update
  at::Tensor gain() const { return gain_; }      ///< [K] or [1]; shared too
  at::Tensor weight() const;                     ///< on the grid

  struct Gradients {
    at::Tensor latent, gain;
  };
  Gradients gradients(const at::Tensor& by_weight, const at::Tensor& weight) const;
  void hold();  ///< after a step: keeps latents where they round to a code

 private:
  at::Tensor scale() const;
  WeightCodes codes_;
  at::Tensor first_scale_, latent_, gain_, free_;  // free_: 0 where the code stays
};

}  // namespace octet
