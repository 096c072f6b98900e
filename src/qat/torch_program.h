// What all Programs over LibTorch share.
#pragma once

#include <string>
#include <vector>

#include "src/engine/engine.h"
#include "src/model/images.h"

namespace octet {

class TorchProgram : public Program {
 public:
  /// Throws Error(promise) when the GPU has no room for the batch, with the cure, and for every other error there.
  void run(const uint8_t* images, int batch, const OutputMemory& outputs, const NodeTap& tap) final;
  size_t arena_bytes() const final { return 0; }  ///< LibTorch's allocator, nothing planned

 protected:
  /// `what`: "the float network", for errors. Without `full_precision` it runs as training does: in TF32 where the
  /// process allows it, and autocast applies.
  explicit TorchProgram(std::string what, bool full_precision = true)
      : what_(std::move(what)), full_precision_(full_precision) {}

  /// The graph's outputs in their order, each [N, C, H, W] on any device: float32, or uint8 as codes are stored; a
  /// flattened one as the image it was. Called without gradients and, with full_precision, under FullPrecision.
  virtual std::vector<at::Tensor> forward(const Pictures& pictures, const NodeTap& tap) = 0;
  virtual const Graph& graph() const = 0;

 private:
  std::string what_;
  bool full_precision_;
};

/// Shows a node's output on any device to a tap, as bytes in channels-last order.
void show(int node, const at::Tensor& output, const NodeTap& tap);

/// A node's output as engines order it, who keep a flattened tensor as the image it was: a flatten's [N, C*H*W, 1, 1]
/// in CHW order becomes that [N, C, H, W], any other stays.
at::Tensor unflatten(const Graph& graph, int node, const at::Tensor& x);

}  // namespace octet
