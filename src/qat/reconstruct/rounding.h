// What learned roundings share (AdaRound; Nagel et al., arXiv 2004.10568, equations 21 to 25): weights on their way
// from floats to codes, the loss and its optimizer. For the files beside it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <vector>

#include "kernels/fake_quantize/weight_codes.h"
#include "src/qat/quantized_model.h"

namespace octet::reconstruct {

/// The codes of one weight [K, ...] with scales float [K]: each value that is neither its channel's largest nor beyond
/// the codes is rounded up or down as h(V) = clamp(1.2 sigmoid(V) - 0.1, 0, 1) says. V begins where h is the value's
/// place between its two codes.
class Rounding {
 public:
  Rounding(const at::Tensor& weight, const at::Tensor& scale, const WeightCodes& codes);

  at::Tensor& logits() { return logits_; }  ///< V, a leaf
  at::Tensor up() const;                    ///< h(V)
  at::Tensor weight(const at::Tensor& up) const;
  /// Sum of 1 - |2 h - 1|^power: 0 where every value has a code.
  at::Tensor push(const at::Tensor& up, double power) const;

  at::Tensor nearest() const { return nearest_; }    ///< codes
  at::Tensor rounded() const;                        ///< codes that h is nearer to
  at::Tensor values(const at::Tensor& codes) const;  ///< their reals
  int64_t moved(const at::Tensor& codes) const;      ///< how many are not the nearest

 private:
  at::Tensor scale_, nearest_, lower_, free_, logits_;
};

/// Kingma & Ba 2015, with the rate 1e-2 of the reference implementations of AdaRound.
class Adam {
 public:
  explicit Adam(at::Tensor values);
  void step();  ///< takes the values' gradient, and clears it

 private:
  at::Tensor values_, mean_, square_;
  int steps_ = 0;
};

/// What pushes are multiplied by after a share of the steps, for `weights` weights, and the power then: 20 falling
/// to 2. factor 0: not yet.
struct Push {
  double factor, power;
};
Push push_at(double share_done, int64_t weights);

/// Of [N, C, H, W]: mean over pictures and pixels of what differs, squared; summed over channels.
at::Tensor squared_error(const at::Tensor& y, const at::Tensor& wanted);

/// [count] random indices below `below`, where x is.
at::Tensor chosen(const at::Tensor& x, int count, at::Generator& random);

/// [K] where a tensor of `like` is.
at::Tensor tensor_of(const std::vector<float>& values, const at::Tensor& like);

/// Writes values of codes into the model's weight of `node`. Scales are of the weights as they are: throws
/// Error(promise) where those on the grid would not give the grid again.
void put_codes(QuantizedModel& model, const Node& node, const Rounding& rounding, const at::Tensor& codes);

/// f of pictures in parts, as many at a time as a step takes.
template <class F>
at::Tensor in_parts(const at::Tensor& x, int size, const F& f) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : x.split(size)) parts.push_back(f(part));
  return at::cat(parts);
}

}  // namespace octet::reconstruct
