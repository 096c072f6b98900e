#include <map>
#include <utility>

#include "src/cuda/memory.h"
#include "src/engine/cuda/conv_choice.h"
#include "src/engine/cuda/conv_step.h"

namespace octet {
namespace {

// A convolution with what has been chosen and uploaded for it.
struct Convolution {
  kernels::Conv2dShape shape;
  kernels::Conv2dParams params;
  kernels::Conv2dWeights weights;
  std::string kernels;
  std::map<int, kernels::CudaConv2d> chosen;  // by number of images
  std::map<int, DeviceBuffer> packed;         // by variant
};

// conv2d and linear, and those merged with the lookup that reads them.
class ConvStep final : public CudaStep {
 public:
  ConvStep(const Lowering& lowering, int node, std::string kernels)
      : conv_(std::make_shared<Convolution>(lowering.conv2d_shape(node), lowering.conv2d_params(node),
                                            lowering.conv2d_weights(node), std::move(kernels))) {}

  std::string kernel(int images) const override { return conv_->chosen.at(images).name + (looks_up_ ? "_lookup" : ""); }

  void prepare(const CudaStepData& data, const Stream& stream) override {
    if (looks_up_ && table_.bytes() == 0) table_ = to_device(codes_, "a lookup's table", stream.get());
    const auto conv = choose_conv2d({conv_->shape, conv_->params, conv_->weights, tensors(data), data.before},
                                    conv_->kernels, stream);
    conv_->chosen[data.images] = conv;
    if (conv_->packed.contains(conv.variant)) return;
    conv_->packed[conv.variant] = to_device(
        kernels::cuda_conv2d_pack(conv, conv_->shape, conv_->params, conv_->weights), "weights", stream.get());
  }

  size_t zeroed_bytes(int images) const override {
    return kernels::cuda_conv2d_workspace(conv_->chosen.at(images), conv_->shape, images);
  }

  size_t constant_bytes() const override {
    if (looks_up_) return table_.bytes();  // the convolution's own step counts the rest
    size_t bytes = 0;
    for (const auto& [variant, buffer] : conv_->packed) bytes += buffer.bytes();
    return bytes;
  }

  void launch(const CudaStepData& data, CudaStream stream) const override {
    const kernels::CudaConv2d& conv = conv_->chosen.at(data.images);
    kernels::CudaConv2dData launched = tensors(data);
    launched.packed = conv_->packed.at(conv.variant).data();
    launched.workspace = data.zeroed;
    launched.beside = data.beside;
    kernels::cuda_conv2d(conv, conv_->shape, conv_->params, launched, stream);
  }

  bool can_run_beside(int images) const override {
    return kernels::cuda_conv2d_runs_beside(conv_->chosen.at(images)) && zeroed_bytes(images) == 0;
  }

  std::unique_ptr<CudaStep> with_lookup(const kernels::LookupTable& table) const override {
    return std::make_unique<ConvStep>(conv_, table);
  }
  ConvStep(std::shared_ptr<Convolution> conv, const kernels::LookupTable& table)
      : conv_(std::move(conv)), looks_up_(true), codes_(std::begin(table.byte), std::end(table.byte)) {}

 private:
  kernels::CudaConv2dData tensors(const CudaStepData& data) const {
    return {.images = data.images,
            .x = data.inputs[0],
            .residual = conv_->params.has_residual ? data.inputs[1] : nullptr,
            .y = data.output,
            .lookup = table_.data()};
  }

  std::shared_ptr<Convolution> conv_;
  bool looks_up_ = false;
  std::vector<uint8_t> codes_;  // of the lookup's table
  DeviceBuffer table_;
};

}  // namespace

std::unique_ptr<CudaStep> make_cuda_conv_step(const Lowering& lowering, int node, const std::string& kernels) {
  return std::make_unique<ConvStep>(lowering, node, kernels);
}

}  // namespace octet
