#include "src/engine/cuda/peer_conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/engine/memory_plan.h"

namespace octet {

PeerConstants::PeerConstants(const kernels::Conv2dShape& shape, const kernels::Conv2dWeights& weights,
                             float residual_multiplier, int lanes_in, int lanes_out, const Stream& stream)
    : lanes_out_(lanes_out) {
  const size_t taps = static_cast<size_t>(shape.kernel_h) * shape.kernel_w;
  weight_bytes_ = aligned(lanes_out_ * taps * lanes_in, kDeviceAlignment);
  std::vector<uint8_t> host(weight_bytes_ + (2 * lanes_out_ + 1) * sizeof(float));
  for (size_t row = 0; row < shape.out_c * taps; ++row) {
    std::memcpy(host.data() + row * lanes_in, weights.weight + row * shape.in_c, shape.in_c);
  }
  uint8_t* floats = host.data() + weight_bytes_;
  std::memcpy(floats, weights.multiplier, shape.out_c * sizeof(float));
  std::memcpy(floats + lanes_out_ * sizeof(float), weights.bias, shape.out_c * sizeof(float));
  std::memcpy(floats + 2 * lanes_out_ * sizeof(float), &residual_multiplier, sizeof(float));
  memory_ = DeviceBuffer(host.size(), "weights");
  copy_to_device(memory_.data(), host.data(), host.size(), stream.get());
  stream.wait("uploading weights");
}

FusedConvSpec fused_conv_spec(const Lowering& lowering, int node, int images) {
  const kernels::Conv2dParams params = lowering.conv2d_params(node);
  FusedConvSpec spec;
  spec.images = images;
  spec.shape = lowering.conv2d_shape(node);
  spec.shape.in_c = spec.shape.in_stride;
  spec.shape.out_c = spec.shape.out_stride;
  spec.residual = params.has_residual;
  spec.clamp_min = params.y.clamp_min, spec.clamp_max = params.y.clamp_max;
  return spec;
}

void PeerConv::upload(const Stream& stream) {
  if (constants_) return;
  const FusedConvSpec of_one = spec(1);
  constants_.emplace(lowering_.conv2d_shape(node_), lowering_.conv2d_weights(node_),
                     lowering_.conv2d_params(node_).residual_multiplier, of_one.shape.in_c, of_one.shape.out_c, stream);
}

FusedConvTensors PeerConv::tensors(const CudaStepData& data) const {
  const bool residual = lowering_.graph.nodes[node_].inputs.size() > 1;
  return {.x = data.inputs[0],
          .weight = constants_->weight(),
          .multiplier = constants_->multiplier(),
          .bias = constants_->bias(),
          .residual = residual ? data.inputs[1] : nullptr,
          .residual_multiplier = constants_->residual_multiplier(),
          .y = data.output,
          .workspace = data.scratch};
}

}  // namespace octet
