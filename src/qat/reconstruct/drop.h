// Activations that are quantized only in part while rounding is learned: QDrop (Wei et al., "QDrop: Randomly Dropping
// Quantization for Extremely Low-bit Post-Training Quantization", arXiv 2203.05740).
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace octet {

/// Of what is quantized each element stays as it was before with a probability, drawn anew at each call. On the CPU
/// from a generator of its own; on a GPU from LibTorch's, for it is the one that a recorded step goes on with when it
/// is replayed (src/model/step_graph.h): it is seeded here and put back at the end, and nobody else may draw in
/// between.
class Drop {
 public:
  /// share: 0 .. 1; with 0 nothing is drawn.
  Drop(double share, uint64_t seed, at::Device device);
  ~Drop();
  Drop(const Drop&) = delete;
  Drop& operator=(const Drop&) = delete;

  bool any() const { return share_ > 0; }
  /// Both of one shape; gradients go to that of the two which each element is from.
  at::Tensor operator()(const at::Tensor& quantized, const at::Tensor& before) const;

 private:
  double share_;
  at::Generator random_;
  at::Tensor before_;  // the state of LibTorch's generator; undefined on the CPU
};

}  // namespace octet
