// SPDX-License-Identifier: Apache-2.0
// The base of all Programs over LibTorch.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/engine/engine.h"
#include "src/train/model/model.h"

namespace octet {

class TorchProgram : public Program {
 public:
  /// Throws Error(promise) if the batch does not fit on the GPU, with the cure, and for every other error of LibTorch.
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) final;
  size_t arena_bytes() const final { return 0; }  ///< LibTorch allocates, and nothing is planned

 protected:
  /// `what` names the program in errors: "the float network". Without `full_precision` it runs as training does, with
  /// TF32 where the process allows it and with autocast.
  explicit TorchProgram(std::string what, bool full_precision = true)
      : what_(std::move(what)), full_precision_(full_precision) {}

  /// Returns the graph's outputs in their order, each [N, C, H, W] on any device: float32, or uint8 for stored codes; a
  /// flattened one as unflatten() gives it. Called without gradients and, if full_precision, under FullPrecision.
  virtual std::vector<at::Tensor> forward(const Images& images, const NodeTap& tap) = 0;
  virtual const Graph& graph() const = 0;

 private:
  std::string what_;
  bool full_precision_;
};

/// Shows the output of a node, on any device, to a tap: its bytes in channels-last order.
void show(int node, const at::Tensor& output, const NodeTap& tap);

/// Returns a node's output as engines order it, which store a flattened tensor as the image before it: the output
/// [N, C*H*W, 1, 1] of a flatten, in CHW order, becomes [N, C, H, W]; any other is returned as it is.
at::Tensor unflatten(const Graph& graph, int node, const at::Tensor& x);

}  // namespace octet
