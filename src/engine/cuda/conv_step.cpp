#include <map>
#include <utility>

#include "src/cuda/memory.h"
#include "src/engine/cuda/conv_choice.h"
#include "src/engine/cuda/conv_step.h"

namespace octet {
namespace {

// conv2d and linear.
class ConvStep final : public CudaStep {
 public:
  ConvStep(const Lowering& lowering, int node, std::string kernels)
      : shape_(lowering.conv2d_shape(node)),
        params_(lowering.conv2d_params(node)),
        weights_(lowering.conv2d_weights(node)),
        kernels_(std::move(kernels)) {}

  std::string kernel(int images) const override { return chosen_.at(images).name; }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    const auto conv = choose_conv2d({shape_, params_, weights_, tensors(data)}, kernels_, stream);
    chosen_[data.images] = conv;
    if (packed_.contains(conv.variant)) return;
    packed_[conv.variant] =
        to_device(kernels::cuda_conv2d_pack(conv, shape_, params_, weights_), "weights", stream.get());
  }

  size_t zeroed_bytes(int images) const override {
    return kernels::cuda_conv2d_workspace(chosen_.at(images), shape_, images);
  }

  size_t constant_bytes() const override {
    size_t bytes = 0;
    for (const auto& [variant, buffer] : packed_) bytes += buffer.bytes();
    return bytes;
  }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    const kernels::CudaConv2d& conv = chosen_.at(data.images);
    kernels::CudaConv2dData launched = tensors(data);
    launched.packed = packed_.at(conv.variant).data();
    launched.workspace = data.zeroed;
    kernels::cuda_conv2d(conv, shape_, params_, launched, stream);
  }

 private:
  kernels::CudaConv2dData tensors(const CudaStepData& data) const {
    kernels::CudaConv2dData tensors;
    tensors.images = data.images;
    tensors.x = data.inputs[0];
    tensors.residual = params_.has_residual ? data.inputs[1] : nullptr;
    tensors.y = data.output;
    return tensors;
  }

  kernels::Conv2dShape shape_;
  kernels::Conv2dParams params_;
  kernels::Conv2dWeights weights_;
  std::string kernels_;
  std::map<int, kernels::CudaConv2d> chosen_;  // by number of images
  std::map<int, DeviceBuffer> packed_;         // by variant
};

}  // namespace

std::unique_ptr<CudaStep> make_cuda_conv_step(const Lowering& lowering, int node, const std::string& kernels) {
  return std::make_unique<ConvStep>(lowering, node, kernels);
}

}  // namespace octet
