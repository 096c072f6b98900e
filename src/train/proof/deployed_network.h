// SPDX-License-Identifier: Apache-2.0
// The whole quantized network over float images, as fast as the device allows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/core/quantize.h"
#include "src/engine/engine.h"
#include "src/net/int8_graph.h"
#include "src/train/qat/quantized_model.h"

namespace octet {

/// A model with all its nodes quantized. On the host it is converted and runs on an engine, which takes a fifth of the
/// simulation's time; where the weights are on a GPU it is the simulation. Holds the weights and scales of when it was
/// made. The model must outlive it.
class DeployedNetwork {
 public:
  /// max_batch: of images at once. Throws Error(promise) where QuantizedModel::convert() does.
  DeployedNetwork(QuantizedModel& model, int max_batch);

  /// Follows the model's edges, which are others now; its weights and biases are those of before.
  void change_edges();

  /// Returns the outputs of the graph for normalized float images [N, C, H, W] where the weights are, each float
  /// [N, C, H, W].
  std::vector<at::Tensor> outputs(const at::Tensor& x);

  /// Shows every node's output as its consumers read it, float [N, C, H, W].
  void run(const at::Tensor& x, const QuantizedModel::Look& look);

 private:
  void compile();

  /// Returns what an engine stores for a node, as values.
  at::Tensor values(int node, const void* data, int64_t batch) const;

  QuantizedModel& model_;
  int max_batch_;
  Int8Graph graph_;
  std::unique_ptr<Program> program_;  ///< null on a GPU
};

/// Returns the preprocessing under which the bytes of the input's codes are the pixels: Fit::tensor, and the mean and
/// deviation with which pixel p becomes the real value of the code whose byte is p.
Preprocessing pixels_are_codes(const QParams& codes, int channels);

/// Returns the pixels, uint8 [N, H, W, C], of x, normalized float [N, C, H, W] on the host, under
/// pixels_are_codes(codes, C).
std::vector<uint8_t> pixels_of(const at::Tensor& x, const QParams& codes);

/// Returns the most images of any batch.
int largest_batch(const std::vector<at::Tensor>& x);

/// Returns the outputs of the model with the nodes of `quantized` quantized, by the simulation. x, `after`: as
/// QuantizedModel::forward_partly() takes them.
std::vector<at::Tensor> partly_quantized_outputs(QuantizedModel& model, const at::Tensor& x,
                                                 const std::vector<bool>& quantized, int after = 0);

}  // namespace octet
