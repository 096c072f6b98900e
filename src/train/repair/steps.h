// SPDX-License-Identifier: Apache-2.0
// The steps in which a rounding is learned: the images of each, the regularizer's schedule, activations that are left
// unquantized at random, and Adam.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace octet {

struct StepPlan {
  int steps = 10000;    ///< of Adam
  int batch_size = 32;  ///< images a step
  uint64_t seed = 1;
  double rate = 1e-2;  ///< of Adam
  double drop = 0;     ///< blocks: share of activations that a step leaves unquantized (Drop)
  bool tf32 = false;   ///< on a GPU steps use TF32 (src/train/model/numerics.h); errors are measured without
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

}  // namespace octet
