// Which way each weight is rounded, as something that a gradient can learn: the variables V of AdaRound (Nagel et al.,
// arXiv 2004.10568, equations 22 to 25).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kernels/fake_quantize/weight_codes.h"

namespace octet {

/// float [K] beside a weight [K, ...].
at::Tensor by_row(const at::Tensor& of_rows, const at::Tensor& weight);

struct FloatWeight {
  at::Tensor values;  ///< float [K, ...]
  at::Tensor scale;   ///< float [K]
  WeightCodes codes;
};

/// The codes of the weights of one or more layers, on their way from floats to integers: float [weights of all layers],
/// so that a step takes as many launches for many layers as for one. Each weight is the code below it plus h(V) in
/// [0, 1]; each channel's largest weight and what lies beyond the codes stay at the nearest, for they carry the scale.
class Rounding {
 public:
  explicit Rounding(const std::vector<FloatWeight>& layers);

  at::Tensor& logits() { return logits_; }  ///< V; in the beginning h(V) is the float weight

  /// h(V) = clamp(g(V), 0, 1), g(V) = 1.2 sigmoid(V) - 0.1, as codes; and what the gradient needs of it.
  struct Soft {
    at::Tensor sigmoid, stretched, up;  ///< sigmoid(V), g(V), h(V)
    at::Tensor codes;
  };
  Soft softly_rounded() const;
  /// The gradient of V, by hand: that of the loss by the layers' weights, and that of the mean over the weights of
  /// 1 - |2 h(V) - 1| ^ power, which pushes h(V) to 0 and 1, times `push`.
  at::Tensor gradient(const Soft& soft, const std::vector<at::Tensor>& by_weights, const at::Tensor& power,
                      const at::Tensor& push) const;

  at::Tensor nearest() const { return nearest_; }  ///< codes
  at::Tensor rounded() const;                      ///< codes, as V says
  /// Codes as the weights of the layers, on the grid.
  std::vector<at::Tensor> weights(const at::Tensor& codes) const;

 private:
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<int64_t> sizes_;
  at::Tensor scale_, nearest_, lower_, free_, logits_;  // free_: 1 where V decides, else 0
};

}  // namespace octet
