// SPDX-License-Identifier: Apache-2.0
// The steps in which a rounding is learned: the images of each, the regularizer's schedule, activations that are left
// unquantized at random, and Adam. And what they move: codes of weights, each rounded up or down (AdaRound; Nagel et
// al., arXiv 2004.10568, equations 22 to 25), and codes that move on from there, with their scales.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/quant/weight_scales.h"

namespace octet {

struct StepPlan {
  int steps = 10000;    ///< of Adam
  int batch_size = 32;  ///< images a step
  uint64_t seed = 1;
  double rate = 1e-2;  ///< of Adam
  double drop = 0;     ///< blocks: share of activations that a step leaves unquantized (Drop)
  bool tf32 = false;   ///< on a GPU steps use TF32 (src/train/model/device.h); errors are measured without
};

/// A table on the device with a row for each step, so that all steps do the same launches and can be recorded
/// (src/train/model/step_graph.h). It holds up to 1024 steps and is filled again when they are done.
class Steps {
 public:
  Steps(const StepPlan& plan, int64_t images, at::Device device);

  struct Row {
    at::Tensor images;  ///< int64 [batch_size], drawn on the CPU and so the same on every device
    /// The regularizer's power and weight, float scalars. For the first fifth of the steps its weight is 0 and its
    /// power 20, which then falls to 2 along half a cosine.
    at::Tensor power, push;
  };
  void prepare(int step);  ///< to be called before each step, in order; fills the table when needed
  Row next();              ///< does not wait for a GPU

 private:
  StepPlan plan_;
  int64_t images_;
  at::Generator random_;
  at::Tensor chosen_, numbers_;  // int64 [rows, batch], float [rows, 2]
  at::Tensor row_;               // int64 [1]
};

/// QDrop (Wei et al., "QDrop: Randomly Dropping Quantization for Extremely Low-bit Post-Training Quantization", arXiv
/// 2203.05740): each quantized element is replaced, with probability `share`, by its value before; drawn anew at each
/// call. On the CPU numbers come from a generator of its own. On a GPU they come from LibTorch's, the one that a
/// replayed step continues: it is seeded here and restored at the end, and nothing else may draw in between.
class Drop {
 public:
  /// share: 0 to 1; with 0 nothing is drawn.
  Drop(double share, uint64_t seed, at::Device device);
  ~Drop();
  Drop(const Drop&) = delete;
  Drop& operator=(const Drop&) = delete;

  bool any() const { return share_ > 0; }
  /// Returns a mixture of two tensors of one shape. Each element's gradient goes to the one that it is from.
  at::Tensor operator()(const at::Tensor& quantized, const at::Tensor& before) const;

 private:
  double share_;
  at::Generator random_;
  at::Tensor before_;  // the state of LibTorch's generator; undefined on the CPU
};

/// Adam (Kingma and Ba, arXiv 1412.6980, algorithm 1). Does not wait for a GPU.
class Adam {
 public:
  explicit Adam(std::vector<at::Tensor> values);
  /// rate: a scalar from learning_rate().
  void step(const std::vector<at::Tensor>& gradients, const at::Tensor& rate);

 private:
  std::vector<at::Tensor> values_, means_, squares_, steps_;
};

/// Returns the rate as a scalar where Adam's values are: double on the CPU, float on a GPU.
at::Tensor learning_rate(double rate, at::Device device);

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
/// (src/quant/calibrate.h).
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
