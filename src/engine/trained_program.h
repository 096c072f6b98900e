// SPDX-License-Identifier: Apache-2.0
// An Int8Graph as the forward pass of training runs it on the GPU: node by node, into memory that the caller owns and
// keeps for the backward pass, with weights, BatchNorm and biases taken from where they train. Only in builds with
// CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/conv/cuda_repack.h"
#include "src/net/int8_graph.h"

namespace octet {

class TrainedProgram {
 public:
  /// The parameters of a conv2d or linear: pointers that stay valid while the program lives.
  using LayerOf = std::function<kernels::TrainedLayer(int node)>;

  /// Prepares `graph` for so many images on the current GPU: chooses kernels by measurement and waits for it. Of its
  /// weights only the constants of channels are used: kernels that round in steps are offered where these allow it
  /// (can_scale_steps() in kernels/conv/cuda/rounding.h), and training is taken to keep them there, between 2^-80 and
  /// 2^8. Throws Error(promise) naming the node for which a kernel or memory is missing.
  TrainedProgram(Int8Graph graph, int images, const LayerOf& layer_of);
  TrainedProgram(TrainedProgram&& other) noexcept;
  ~TrainedProgram();

  /// Returns the bytes that the output of a node needs: [images, H, W, stride()] codes or, for float outputs, float32
  /// [images, H, W, C], and what may be read behind them.
  size_t bytes(int node) const;
  int stride(int node) const;          ///< elements from one pixel of the output to the next
  bool shares_memory(int node) const;  ///< a flatten whose output is its input's memory; it is not launched

  // What follows launches work on `stream` and neither waits nor allocates.

  void pack_weights(CudaStream stream) const;  ///< to be called after the layers' parameters have changed
  /// Runs a node. inputs: the memory of its inputs, of a multiple of kDeviceAlignment. Not for the input node.
  void launch(int node, const uint8_t* const* inputs, void* output, CudaStream stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octet
