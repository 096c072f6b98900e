// A conv2d of a graph as the steps of other libraries take it, with its constants on the device. No CUDA types here.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/conv2d_int8/conv2d_int8.h"
#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/engine/cuda/fused_conv_spec.h"
#include "src/engine/cuda/step.h"
#include "src/engine/lowering.h"

namespace octet {

/// Weights, multipliers and biases of a conv2d or linear on the device, padded with zeros to whole lanes.
class PeerConstants {
 public:
  /// [lanes_out, R, S, lanes_in] codes; multiplier and bias [lanes_out]; the residual's multiplier [1]. Waits for the
  /// upload.
  PeerConstants(const kernels::Conv2dShape& shape, const kernels::Conv2dWeights& weights, float residual_multiplier,
                int lanes_in, int lanes_out, const Stream& stream);
  const int8_t* weight() const { return reinterpret_cast<const int8_t*>(memory_.data()); }
  const float* multiplier() const { return floats(); }
  const float* bias() const { return floats() + lanes_out_; }
  const float* residual_multiplier() const { return floats() + 2 * lanes_out_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  const float* floats() const { return reinterpret_cast<const float*>(memory_.data() + weight_bytes_); }

  size_t lanes_out_, weight_bytes_;  ///< weight_bytes_: rounded up, so that what follows is aligned
  DeviceBuffer memory_;
};

/// A conv2d whose channels are the pixel strides, so that channels that are no multiple of 16 run too (weights of the
/// lanes behind the last channel are 0).
FusedConvSpec fused_conv_spec(const Lowering& lowering, int node, int images);

/// A conv2d of a graph for a peer's step: its spec, and its operands where the program keeps them.
class PeerConv {
 public:
  PeerConv(const Lowering& lowering, int node) : lowering_(lowering), node_(node) {}

  FusedConvSpec spec(int images) const { return fused_conv_spec(lowering_, node_, images); }
  /// Once, before tensors().
  void upload(const Stream& stream);
  FusedConvTensors tensors(const CudaStepData& data) const;
  size_t constant_bytes() const { return constants_ ? constants_->bytes() : 0; }

 private:
  const Lowering& lowering_;
  int node_;
  std::optional<PeerConstants> constants_;
};

}  // namespace octet
